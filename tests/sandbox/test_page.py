"""docs/reference/sandbox.md lists what the code has, and names settings that there are."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from relay.base.secrecy import SECRET_NAMES, TEMPLATE_SUFFIXES
from relay.config.keys import KEYS
from relay.config.model import Paths
from relay.sandbox.places import HOME_SECRETS, INSTALLED, SHARED_HIDDEN, SYSTEM_SECRETS, TOOL_CACHES
from relay.sandbox.policy import PROTECTED_NAMES
from relay.sandbox.toolchains import FIXED, LOCATIONS, NEVER, PASSED, VERSIONS
from relay.setup.workspace import LOCK_FILES

PAGE = (Path(__file__).parents[2] / "docs/reference/sandbox.md").read_text()
LISTS: Mapping[str, Iterable[str]] = {
    "SHARED_HIDDEN": SHARED_HIDDEN,
    "HOME_SECRETS": HOME_SECRETS,
    "SYSTEM_SECRETS": SYSTEM_SECRETS,
    "SECRET_NAMES": SECRET_NAMES,
    "TEMPLATE_SUFFIXES": TEMPLATE_SUFFIXES,
    "PROTECTED_NAMES": PROTECTED_NAMES,
    "PASSED": sorted(PASSED),
    "LOCATIONS VERSIONS": (*LOCATIONS, *sorted(VERSIONS)),
    "FIXED": [f"{name}={value}" for name, value in FIXED.items()],
    "LOCK_FILES": LOCK_FILES,
    "TOOL_CACHES": sorted(TOOL_CACHES),
    "INSTALLED": sorted(INSTALLED),
}
"""Name of a list in a comment of the page to what stands below it."""


def test_a_list_of_the_page_is_the_codes() -> None:
    for name, wanted in LISTS.items():
        found = re.search(rf"<!-- {name} -->\n((?:.+\n)+)", PAGE)
        assert found, f"docs/reference/sandbox.md has no list {name}"
        assert re.findall(r"`([^`]+)`", found[1]) == list(wanted), " ".join(f"`{entry}`" for entry in wanted)


def test_the_page_names_no_other_list_and_no_other_setting() -> None:
    assert set(re.findall(r"<!-- (.+) -->", PAGE)) == set(LISTS)
    settings = re.findall(r"`([a-z_]+) = ", PAGE)
    assert set(settings) <= KEYS.keys()
    assert set(re.findall(r"`paths\.([a-z]+)`", PAGE)) <= {*Paths.__struct_fields__}


def test_what_the_page_says_is_never_passed() -> None:
    names = "LD_X DYLD_X PYTHONPATH GIT_DIR SSH_AUTH_SOCK ANTHROPIC_X MY_API_KEY BASH_ENV NODE_OPTIONS"
    assert [name for name in names.split() if not NEVER.fullmatch(name)] == []
