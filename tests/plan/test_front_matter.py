"""The YAML block at the top: only `relay` is kept, and nothing in it can harm."""

import pytest

from relay.base.errors import PlanError
from relay.plan.parse import parse_plan
from relay.plan.text import find_setting_line

BODY = "# P\n- [ ] a\n"


def test_the_relay_mapping_is_kept_as_it_is():
    plan = parse_plan(f"---\nrelay: {{verify: ['pytest -q'], model: m, reset_at: 45%, max_cost_usd: 20}}\n---\n{BODY}")
    assert plan.settings == {"verify": ["pytest -q"], "model": "m", "reset_at": "45%", "max_cost_usd": 20}
    assert plan.phases[0].verify == ("pytest -q",)
    assert plan.phases[0].line == 4
    assert plan.preamble == ""


def test_a_setting_has_a_line():
    front = "---\nrelay:\n  model: m\n  axb: 1\n  a.b: 2\n  x: {y: 1, 'reset_at': 45%}\n---\n"
    outline = parse_plan(f"{front}# P\nbody: x\n- [ ] a\n").outline
    lines = {"model": 3, "a.b": 5, "reset_at": 6, "elsewhere": 1, "body": 1}
    assert {key: find_setting_line(outline.front, outline.lines, key) for key in lines} == lines


OTHERS = (
    "",
    "---\n---\n",
    "---\n# only a comment\n---\n",
    "---\ntitle: x\ndate: 2026-11-20\ntags: [a, b]\n---\n",
    "---\nrelay:\n---\n",
    "\ufeff---   \r\nfeature: 1\r\n---\t\r\n",
    "---\n",
    "---\n\nrelay: {model: m}\n",
    "---\nMy plan\n---\n",
    "\n---\nrelay: {model: m}\n---\n",
    "----\nrelay: {model: m}\n----\n",
    "---\nSome *text: with* a: colon\n\n---\n",
    "---\noverview: a: b\nisProject: false\n---\n",
    "---\nname: x\n\n",
)
BREAKS = ("---\nStatus: draft\n# P\n- [ ] a\n\n---\ntext\n", "---\n\n# P\n- [ ] a\n\n---\n\ntext\n")


def test_other_tools_keys_and_plain_thematic_breaks_are_left_alone_and_hide_no_phase():
    for text in (*(front + BODY for front in OTHERS), *BREAKS):
        plan = parse_plan(text)
        assert (plan.settings, plan.phases[-1].title, [item.text for item in plan.items]) == ({}, "P", ["a"]), text


UNUSABLE = [
    ("a: [", 3, "not valid YAML"),
    ("a: 1\nb: : 2", 3, "not valid YAML"),
    ("a: 1\n\tb: 2", 3, "not valid YAML"),
    ("a: \x07", 2, "not valid YAML"),
    ("a: &x [1]\nb: *x", 2, "alias"),
    ("a: !!python/object/apply:os.system [id]", 2, "tag"),
    ("a: !x y", 2, "tag"),
    ("a: 2026-13-45", 2, "not valid YAML"),
    ("a: 0x_", 2, "not valid YAML"),
    (f"a: {'9' * 5000}", 2, "not valid YAML"),
    ("a: =", 2, "YAML"),
    ("a: " + "[" * 60 + "]" * 60, 2, "50 levels"),
    ("a: " + "[" * 400, 2, "50 levels"),
    ("a: 1\nrelay: yes", 3, "must be a mapping"),
    ("relay: [x]", 2, "must be a mapping"),
    ("relay: {on: 1}", 2, "keys must be words"),
    ("relay:\n  model: x\n  verify: [true]", 4, "list of commands"),
    ("relay: {verify: ['']}", 2, "list of commands"),
    ("relay: {verify: {a: b}}", 2, "list of commands"),
    ("relay: {model: a}\nx: 1\nrelay: {model: b}", 4, "twice"),
    ("relay:\n  verify: [a]\n  verify: [b]", 4, "twice"),
    ("a: 1\n--- b", 3, "not valid YAML"),
    ("? [a]\n: b\n{c}: d", 2, "unhashable"),
]


def test_front_matter_that_cannot_be_used_is_refused_by_line_and_that_of_others_need_not_be_yaml():
    wrong = []
    for front, line, words in UNUSABLE:
        plan = parse_plan(f"---\n{front.replace('relay', 'other')}\n---\n{BODY}")
        assert ([item.text for item in plan.items], plan.settings) == (["a"], {}), front
        own, at = front, line
        if "relay" not in front:
            is_value = front.startswith(("a: 2", "a: 0x", "a: 9"))  # nothing says where these stand
            own, at = f"relay: {{model: m}}\n{front}", line + (not is_value)
        with pytest.raises(PlanError, match="the front matter") as caught:
            parse_plan(f"---\n{own}\n---\n{BODY}")
        if words not in caught.value.message or caught.value.line != at:
            wrong.append((front, caught.value))
    assert wrong == []


def test_front_matter_that_is_not_closed_is_refused():
    for front in ("---\nrelay: {model: m}\n", f"---\nrelay: {{}}\na: {'x' * 70_000}\n---\n"):
        with pytest.raises(PlanError, match=r"^line 1: .*not closed by a line `---` within 64 KiB"):
            parse_plan(front + BODY)


@pytest.mark.parametrize("folder", ["../up", "", "[a]"])
def test_a_refused_directory_names_its_line(folder):
    with pytest.raises(PlanError) as caught:
        parse_plan(f"---\nrelay:\n  model: m\n  in: {folder or chr(39) * 2}\n---\n{BODY}")
    assert caught.value.line == 4
