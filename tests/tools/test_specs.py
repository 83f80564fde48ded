"""The tools as the model sees them, and the check of what it sends."""

from relay.tools.toolbox import PLANNER_SPECS, RUNNER_SPECS, check_input


def test_order_and_names_are_fixed_because_the_cache_hangs_on_them():
    names = "read edit write bash tick record amend hand_off defer block"
    assert [spec.name for spec in RUNNER_SPECS] == names.split()
    assert [spec.name for spec in PLANNER_SPECS] == ["read", "bash", "ask", "submit_plan"]


def test_schemas_are_closed():
    """Without a word of it, which each request would pay."""
    for spec in (*RUNNER_SPECS, *PLANNER_SPECS):
        assert spec.input_schema["type"] == "object"
        assert set(spec.input_schema["required"]) <= set(spec.input_schema["properties"]), spec.name
        assert '"path_of_another_tool" is not known' in (check_input(spec, {"path_of_another_tool": "x"}) or "")


def test_wrong_input_is_named_with_what_is_allowed():
    specs = {spec.name: spec for spec in RUNNER_SPECS}
    for name, given_input, found in (
        ("edit", {"path": "a", "old": "x"}, '"new" is missing'),
        ("edit", {"path": "a", "old_text": "x", "new": "y"}, '"old_text" is not known'),
        ("read", {"path": 3}, '"path" must be a string'),
        ("read", {"path": "a", "offset": "3"}, '"offset" must be an integer'),
        ("read", {"path": "a", "offset": True}, '"offset" must be an integer'),
        ("read", {"path": "a", "offset": -1}, '"offset" must not be negative'),
        ("record", {"claim": "c", "because": "b", "sources": "a.py"}, '"sources" must be a list of strings'),
        ("record", {"claim": "c", "because": "b", "sources": ["a", 1]}, '"sources" must be a list of strings'),
        ("write", {"path": "a", "content": "\ud800"}, "surrogate"),
        ("hand_off", {"next_step": "n", "learned": ["\udfff"], "dead_ends": []}, "surrogate"),
        ("tick", {"item": None, "evidence": "e"}, '"item" must be a string'),
    ):
        fault = check_input(specs[name], given_input) or ""
        assert (found in fault, "Allowed:" in fault) == (True, True), (name, given_input)
    assert check_input(specs["read"], {"path": "a"}) is None  # the others may be left out
    assert check_input(specs["read"], {"path": "a", "offset": 1, "limit": 2}) is None


def test_unknown_tools_are_answered_with_the_names(bench):
    assert "There is no tool 'str_replace'. Tools: read, edit," in bench.refused("str_replace", path="a")
    assert bench.notes.counts["str_replace"] == 1


def test_a_tool_is_known_however_its_name_is_written(bench):
    """Some models were taught `Bash`, and each call is paid."""
    assert bench.ok("Bash", command="echo hello") == "exit 0\nhello"
    assert bench.notes.counts == {"bash": 1}


def test_wrong_input_runs_nothing(bench):
    bench.refused("write", path="x.txt", content="x", mode="w")
    assert not (bench.root / "x.txt").exists()
    assert "write" in bench.notes.last_errors
