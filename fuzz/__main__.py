"""Fuzz a target with atheris, guided by the coverage of relay's code.

    python -m fuzz NAME [--seconds N] [--keep DIR]

It starts from `fuzz/corpus/NAME`, ends at the first finding (the input is left in the current directory as
`crash-…`; put it into the corpus with the correction) or after the time, and prints libFuzzer's figures. An input is
also tried many times over: time that grows faster than the input is a finding.
"""

import argparse
import sys
import tempfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path

MAX_BYTES = 4096
_GROWN_BYTES = 8 * 1024
_GROWS_EVERY = 1024
_NOTICED_S = 0.2
"""CPU time below which an input counts as having taken this long: less cannot be told from noise."""
_ALLOWED_GROWTH = 3.0
"""Twice the input may take so many times the CPU time; quadratic work takes four times."""


def check_growth(run: Callable[[bytes], None], data: bytes) -> None:
    """Try the input, and a piece of it, repeated to two sizes, one twice the other.

    Raises:
        AssertionError: The time grows faster than the input.
    """
    cut = zlib.crc32(data) % (len(data) + 1)
    for unit in filter(None, {data, data[cut:]}):
        once, twice = (unit * (size // len(unit)) for size in (_GROWN_BYTES, 2 * _GROWN_BYTES))
        # A busy machine makes one pair of measurements look bad, hardly three in a row.
        bad = all(_measure(run, twice) > _ALLOWED_GROWTH * max(_measure(run, once), _NOTICED_S) for _ in range(3))
        assert not bad, f"twice the input takes more than {_ALLOWED_GROWTH:g} times as long: {unit!r}"


def _measure(run: Callable[[bytes], None], data: bytes) -> float:
    begun = time.process_time()
    run(data)
    return time.process_time() - begun


def fuzz(name: str, *, seconds: int, kept: Path) -> None:
    """Run libFuzzer; it ends the process itself."""
    import atheris

    with atheris.instrument_imports(include=["relay", "markdown_it"]):
        from fuzz.targets import CORPUS, TARGETS

    run = TARGETS[name]

    def run_one(data: bytes) -> None:
        run(data)
        if data and zlib.crc32(data) % _GROWS_EVERY == 0:
            check_growth(run, data)

    options = (
        f"-max_total_time={seconds}",
        f"-max_len={MAX_BYTES}",
        f"-dict={CORPUS.parent / 'tokens.dict'}",
        "-timeout=60",
        "-rss_limit_mb=2048",
        "-print_final_stats=1",
    )
    atheris.Setup([sys.argv[0], str(kept), str(CORPUS / name), *options], run_one)
    atheris.Fuzz()


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m fuzz")
    # Not the targets themselves: what imports them before atheris is ready has no coverage.
    parser.add_argument("name", choices=sorted(place.name for place in Path(__file__).with_name("corpus").iterdir()))
    parser.add_argument("--seconds", type=int, default=300)
    parser.add_argument("--keep", type=Path, help="where inputs with new coverage go; a temporary directory otherwise")
    arguments = parser.parse_args()
    kept = arguments.keep or Path(tempfile.mkdtemp(prefix="relay-fuzz-"))
    kept.mkdir(parents=True, exist_ok=True)
    fuzz(arguments.name, seconds=arguments.seconds, kept=kept)


if __name__ == "__main__":
    main()
