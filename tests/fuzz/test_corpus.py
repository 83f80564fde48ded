"""Every seed and every former finding of the fuzzers, without a fuzzer; `make fuzz` looks for more."""

import pytest

from fuzz.targets import CORPUS, TARGETS

FILES = sorted(path for path in CORPUS.rglob("*") if path.is_file())


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_what_once_was_found_stays_corrected(path):
    TARGETS[path.parent.name](path.read_bytes())


def test_each_target_has_a_corpus_and_all_of_it_is_small():
    """A directory without a target would be replayed by nobody."""
    assert {path.parent.name for path in FILES} == set(TARGETS)
    assert sum(path.stat().st_size for path in FILES) < 300 * 1024
