"""Plans as people and other tools write them, read as they are."""

from pathlib import Path

import pytest

from relay.plan.check import check_plan
from relay.plan.model import Plan
from relay.plan.parse import parse_plan

FORMATS = Path(__file__).parent / "formats"

MESSY = """\ufeffthings todo before friday
=====================
call ops first !!!!   - [ ] (this is not a list)

step 1) get it building
------------------
verify: make build
*\t[x]\tfix `Makefile` -- Makefile, scripts/build.sh
* [X] bump deps
    + [ ] lock file\x20\x20\x20

after: none

step 2) ship it
----------
> - [ ] tell everybody
> - [ ] changelog – CHANGELOG.md

1. [ ] tag
2. [ ] push
   <!-- - [ ] old -->
3. [ ] announce
notes to self: - [ ] x""".replace("\n", "\r\n")


def read(name: str) -> Plan:
    return parse_plan((FORMATS / name).read_bytes().decode())


def outline(plan: Plan) -> list[tuple[str, str, int]]:
    return [(phase.id, phase.title, len(phase.items)) for phase in plan.phases]


def test_a_plan_in_the_style_of_claude():
    plan = read("claude.md")
    assert plan.title == "Plan: Rate limiting for the public API"
    assert outline(plan) == [("1", "Token bucket", 4), ("2", "Middleware", 2)]
    assert plan.phases[0].verify == ("pytest -q tests/test_bucket.py", "mypy gateway")
    assert plan.phases[1].verify == ("pytest -q tests/test_middleware.py", "pytest -q tests/integration")
    first = plan.phases[0].items
    assert [item.depth for item in first] == [0, 0, 1, 1]
    assert [item.done for item in first] == [True, False, False, False]
    assert first[0].paths == ("gateway/bucket.py",)
    assert first[1].paths == ("tests/test_bucket.py",)
    assert plan.phases[1].items[0].paths == ("gateway/middleware.py",)
    assert plan.phases[1].end == plan.text.index("## Open questions")


def test_a_plan_of_ralphex():
    plan = read("ralphex.md")
    assert outline(plan) == [("1", "Backoff", 2), ("2", "Use it in the uploader", 2), ("3", "Docs", 1)]
    assert {phase.verify for phase in plan.phases} == {("go test ./...", "golangci-lint run")}
    assert plan.phases[0].done
    assert plan.phases[1].items[1].text == "[skipped?] ask about limits"
    assert plan.phases[0].items[0].paths == ("pkg/backoff/backoff.go",)
    assert plan.phases[2].items[0].paths == ()


def test_the_tasks_of_spec_kit():
    plan = read("speckit.md")
    assert outline(plan) == [
        ("1", "Setup (Shared Infrastructure)", 2),
        ("2", "Foundational (Blocking Prerequisites)", 2),
        ("3", "User Story 1 - Drag albums (Priority: P1) 🎯 MVP", 2),
    ]
    items = [item for phase in plan.phases for item in phase.items]
    assert items[0].done
    assert items[4].text == "T005 [P] [US1] Contract test in tests/contract/test_albums.py"
    assert [item.paths for item in items[2:]] == [
        ("backend/src/db/schema.py",),
        ("backend/src/models/album.py", "backend/src/models/photo.py"),
        ("tests/contract/test_albums.py",),
        ("backend/src/services/album_service.py",),
    ]


def test_the_tasks_of_kiro():
    plan = read("kiro.md")
    assert outline(plan) == [
        ("1", "Set up the project", 2),
        ("2", "Store notes", 3),
        ("3", "Search notes (P)", 1),
        ("4", "Write the guide in docs/guide.md", 1),
    ]
    assert [(item.id, item.done, item.optional, item.depth) for item in plan.items] == [
        ("1", True, False, 0),
        ("1.1", True, False, 1),
        ("2", False, False, 0),
        ("2.1", False, False, 1),
        ("2.2", False, True, 1),
        ("3", False, False, 0),
        ("4", False, True, 0),
    ]
    assert [item.id for phase in plan.phases for item in phase.open_items] == ["2", "2.1", "3"]
    assert [v.message for v in check_plan(plan) if not v.warning] == []


def test_the_tasks_of_superpowers():
    plan = read("superpowers.md")
    assert outline(plan) == [("1", "Backoff", 3), ("2", "Finish", 2)]
    one, two = plan.phases
    assert [item.id for item in two.items] == ["2.1", "2.2"]
    assert one.files == ("src/backoff.py", "src/upload.py", "tests/test_backoff.py")
    assert two.files == ("src/upload.py", "data.json")
    assert (one.verify, two.verify) == ((), ())
    assert [(v.line, v.warning, v.message.partition(" (")[0][:30]) for v in check_plan(plan)] == [
        (9, True, "phases 1, 2 have no `Verify:` "),
    ]


def test_the_tasks_of_openspec_below_front_matter_of_another_tool():
    plan = read("openspec.md")
    assert outline(plan) == [("1", "Schema", 2), ("2", "Endpoint", 3), ("3", "Validation", 2)]
    assert [item.id for item in plan.items] == ["1.1", "1.2", "2/1", "2.1", "2.2", "3/1", "3.2"]
    found = [v.message for v in check_plan(plan)]
    assert any("of the items here, the one that says 3.1 is item 3/1, 3.1 is item 3.2" in message for message in found)


def test_a_roadmap_in_the_style_of_gsd():
    plan = read("gsd.md")
    assert outline(plan) == [("1", "Foundation", 2), ("2", "Capture", 2)]
    assert plan.phases[0].done
    assert plan.phases[1].items[0].paths == ("src/capture/recorder.ts",)


def test_a_plan_written_by_hand_in_a_hurry():
    plan = parse_plan(MESSY)
    assert plan.title == "things todo before friday"
    assert outline(plan) == [("1", "get it building", 3), ("2", "ship it", 5)]
    one, two = plan.phases
    assert one.verify == ("make build",)
    assert one.after == ()
    assert [(item.id, item.done, item.depth, item.line) for item in one.items] == [
        ("1.1", True, 0, 8),
        ("1.2", True, 0, 9),
        ("1.3", False, 1, 10),
    ]
    assert one.items[0].paths == ("Makefile", "scripts/build.sh")
    assert one.items[2].text == "lock file"
    assert [item.text for item in two.items] == [
        "tell everybody",
        "changelog – CHANGELOG.md",
        "tag",
        "push",
        "announce",
    ]
    assert two.items[1].paths == ("CHANGELOG.md",)


@pytest.mark.parametrize("name", ["claude.md", "ralphex.md"])
def test_a_good_plan_has_no_errors(name):
    assert [violation for violation in check_plan(read(name)) if not violation.warning] == []


def test_the_shipped_example_has_nothing_to_complain_about():
    text = (Path(__file__).parents[2] / "examples" / "PLAN.md").read_text(encoding="utf-8")
    assert check_plan(parse_plan(text)) == ()
