"""docs/reference/messages.md: what it explains is what relay says, and its last part has all that relay says."""

import re
from pathlib import Path

import pytest

from relay.base.errors import ErrorKind, RelayError
from relay.config import load_settings
from relay.gate.shell_line import check_command
from relay.plan.parse import parse_plan
from relay.prompts.package_data import EXAMPLE
from relay.run.selection import get_phase
from relay.runners.messages.endpoint import get_key_name
from relay.session.prices import Budget
from tests.cli.refusals import GAP, find_refusals, write_list

PAGE = Path(__file__).parents[2] / "docs/reference/messages.md"
FIRST = ("relay/setup/preconditions.py", "relay/run/commit/readiness.py")
FEWEST_SITES = 10
FEWEST = 200
"""There are more; fewer mean that the code is read no more."""


def list_explained() -> list[str]:
    return re.findall(r"^### `(.+)`$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)


def test_what_is_explained_is_what_relay_says_and_the_list_has_it_all():
    """Each place that refuses with advice before the first session has a heading, or a place in the text below one."""
    refusals, listed = find_refusals(), write_list()
    assert len(refusals) > FEWEST
    assert {refusal.kind for refusal in refusals} == set(ErrorKind)
    assert [refusal.place for refusal in refusals if refusal.message not in listed] == []
    assert [refusal.place for refusal in refusals if refusal.hint.strip(f"{GAP} ·") not in listed] == []

    said = {refusal.message.replace("`", "") for refusal in refusals}
    assert [words for words in list_explained() if not any(message.startswith(words) for message in said)] == []

    text, explained = PAGE.read_text(encoding="utf-8").replace("`", ""), tuple(list_explained())
    sites: dict[str, set[str]] = {}
    for refusal in refusals:
        if refusal.hint and refusal.place.startswith(FIRST):
            sites.setdefault(refusal.place, set()).add(refusal.message.replace("`", ""))
    assert [
        sorted(words) for words in sites.values() if not any(one.startswith(explained) or one in text for one in words)
    ] == []
    assert len(sites) > FEWEST_SITES


def test_no_message_is_explained_twice():
    explained = list_explained()
    assert len(set(explained)) == len(explained)


def test_what_is_printed_can_be_searched_for():
    """The page holds common messages as relay prints them, each on one line."""
    plan = parse_plan("## Phase 1\nVerify: `make`\n- [ ] Say hello\n")
    with pytest.raises(RelayError) as phase:
        get_phase(plan, "9")
    with pytest.raises(RelayError) as key:
        get_key_name({})
    with pytest.raises(RelayError) as setting:
        load_settings(flags={}, environ={}, plan_settings={"max_session": 3}, repo_root=None, user_dir=None)
    unknown = setting.value.message.partition(": ")[2]
    price, _, _ = str(Budget(run_cap_usd=20).check(None, 1)).partition(";")
    printed = [EXAMPLE, price, str(check_command("true")), phase.value.message, key.value.message, unknown]
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    assert [
        words for words in (*printed, "nothing would check the ticks") if not any(words in at for at in lines)
    ] == []
