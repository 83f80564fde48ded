"""Each shell block of README.md and docs/ is typed into a shell, page by page; one that is not has a reason here.

A page is one story: its blocks run in their order, in one project, with one rehearsed model. `Story` says what was
there before, what a person does between two blocks, and how commands end that are to end otherwise than with 0.
"""

import base64
import json
import re
import shlex
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml

from relay.base.errors import ExitCode
from tests.effort import NIGHTLY
from tests.scripts import call, serving

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PATIENCE_S = 240

IN_A_CONTAINER = (
    'relay() { eval "docker run --rm -it -v \\"\\$PWD:/work\\" -e ANTHROPIC_API_KEY $RELAY_FLAGS relay \\"\\$@\\""; }'
)
NOT_RUN = {
    "pip install '.[fleet]'               # in a checkout: on each machine, and where you submit": "workers go on",
    "git clone ADDRESS-OF-THIS-PAGE relay": "it needs the network and makes an environment; tests/demo/ plays the demo",
    "make demo": "it makes an environment; tests/demo/ plays what it starts",
    "pipx install .": "it needs the package registry; `make package` tries the wheel",
    "ant auth login": "it needs a browser and an account; tests/runners/test_clouds.py has what it leaves behind",
    "relay init --agent claude": "it needs Claude Code's adapter; tests/agents/test_try.py has another agent",
    "relay run --runner claude": "it needs Claude Code; `make agents` runs it",
    "docker build --tag relay --file Containerfile .": "it needs an image registry",
    IN_A_CONTAINER: "the same",
    "relay run --sandbox container": "relay refuses it outside of a container; tests/sandbox/ has both",
    "relay demo --serve ../rehearsal.yaml": "it serves until Ctrl-C; the page's script is served here, too",
    "relay plan --from-session": "it asks a person; tests/planning/test_from_session.py has each part",
    "relay run --not-before 22:00 --until 07:00 --max-cost 10": "it waits for the night; tests/loop/test_hours.py",
}
"""The first line of each block that no test types, and why."""

STAND_INS = {"your/repository": "project", "KEY=…": "KEY=k", "NAME-OF-THE-MODEL": "claude-opus-5-5"}
"""What a person replaces by words of their own."""

PLAN = """\
# Greetings

## Phase 1 — Hello
Verify: `grep -q hello hello.txt`
- [ ] Say hello — hello.txt

## Phase 2 — World
After: none
Verify: `grep -q world world.txt`
- [ ] Say world — world.txt
"""


def say(word: str, number: int) -> dict[str, object]:
    """Return a session that does a phase of the plan."""
    turns = [
        call("write", path=f"{word}.txt", content=word),
        call("tick", item=f"{number}.1", evidence="grep finds it"),
    ]
    return {"when": {"first_message_contains": f"Say {word}"}, "turns": [*turns, {"text": f"Commit: Say {word}"}]}


HELLO, WORLD = say("hello", 1), say("world", 2)
SMALL_WORLD = {**WORLD, "when": {"first_message_contains": "Small world"}}


def pretend(number: int) -> dict[str, object]:
    """Return a session that claims a phase's item and does nothing."""
    return {"turns": [call("tick", item=f"{number}.1", evidence="it is not so"), {"text": "Done.", "repeat": 4}]}


@dataclass(frozen=True, kw_only=True)
class Story:
    """What a page's blocks are typed into."""

    sessions: tuple[Mapping[str, object], ...] = ()
    plan: str = PLAN
    """Empty: no plan, in a project beside the directory that the page begins in."""
    before: str = ""
    """Commands that make the situation."""
    config: str = ""
    """The user's settings."""
    between: Mapping[str, str] = field(default_factory=dict)
    """What a person types before the block that begins with a line."""
    codes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """How the lines of the block that begins with a line end, where not all with 0."""


def find_example(page: str, kind: str) -> str:
    """Return the first block of a kind on a page."""
    return (ROOT / page).read_text(encoding="utf-8").partition(f"```{kind}\n")[2].partition("```")[0]


def encode(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


SMALLER = """\
## Small world
Verify: `grep -q world world.txt`
- [ ] Say world — world.txt

## Moon
Verify: `grep -q moon moon.txt`
- [ ] Say moon — moon.txt
"""
FORGE = r"""case "$*" in "pr view"*number*) echo "{\"number\":7,\"state\":\"OPEN\",\"headRefName\":\"$3\"}" ;; esac"""
SCRIPT = find_example("docs/how-to/rehearse.md", "yaml")
STORIES = {
    "README.md": Story(plan=""),
    "docs/tutorial.md": Story(plan="", sessions=({"turns": [call("submit_plan", markdown=PLAN)]}, HELLO, WORLD)),
    "docs/reference/agents.md": Story(codes={"relay doctor --agent": (ExitCode.USER,)}),  # there is none
    "docs/how-to/checks.md": Story(
        before="printf '#!/bin/sh\\n' > .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit",
        sessions=(HELLO, WORLD),
        codes={
            "relay gate": (ExitCode.STOPPED, 0),
            "relay gate --hooks": (ExitCode.STOPPED,),
        },  # nothing says hello yet
    ),
    "docs/how-to/compare.md": Story(
        before="mkdir ~/held-out",
        codes={  # nobody can be asked; tests/lab/ has whole experiments
            "relay lab compare PLAN.md --arms reset,none --repeats 3 --max-cost 30": (ExitCode.USER,),
            "relay lab compare --arms reset,none --max-cost 30"
            " --hidden 'pytest $RELAY_HIDDEN' --hidden-dir ~/held-out": (ExitCode.USER,),
        },
    ),
    "docs/how-to/endpoints.md": Story(sessions=({"turns": [call("echo", word="relay"), {"text": "Relay."}]},)),
    "docs/how-to/exit-4.md": Story(
        before="relay run --phase 1",
        sessions=(
            pretend(1),
            pretend(2),
            {"turns": [call("submit_plan", markdown=SMALLER)]},
            SMALL_WORLD,
            say("moon", 3),
        ),
        between={"relay shell -- git diff": "echo hello > ../project.relay/1/hello.txt"},
        codes={
            "relay run --phase 1": (ExitCode.STOPPED,),
            "relay status --why": (0, ExitCode.STOPPED),
            "relay shell -- git diff": (0, 0, ExitCode.STOPPED),  # phase 1 is committed, and phase 2 is red
        },
    ),
    "docs/how-to/mac.md": Story(sessions=(HELLO, WORLD)),
    "docs/how-to/night.md": Story(
        before="relay run --phase 1", sessions=(HELLO,), config='notify = [{ command = ["true"] }]'
    ),
    "docs/how-to/rehearse.md": Story(
        before=f"git rm -q PLAN.md; git commit -q -m start; echo {encode(SCRIPT)} | base64 -d > ../rehearsal.yaml",
        sessions=tuple(yaml.safe_load(SCRIPT)["sessions"]),
    ),
    "docs/how-to/review.md": Story(
        # A forge that has a request and says nothing else.
        before="git init -q --bare ../origin.git; git remote add origin ../origin.git; git push -q origin main;"
        f" printf '#!/bin/sh\\n%s' {shlex.quote(FORGE)} > ../bin/gh; chmod +x ../bin/gh; relay run --phase 1",
        sessions=(HELLO, *({"turns": [call("report_findings", findings=[])]},) * 2, WORLD),
    ),
    "docs/how-to/several-phases.md": Story(sessions=(HELLO, WORLD)),
}


def find_blocks(page: Path) -> list[str]:
    """Return the shell blocks of a page, in their order."""
    return re.findall(
        r"^ *```(?:sh|bash|console)\n(.*?)^ *```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )


def begin(block: str) -> str:
    return block.partition("\n")[0]


def replace(line: str) -> str:
    """Return a line with words in place of those that a person replaces."""
    for words, stand_in in STAND_INS.items():
        line = line.replace(words, stand_in)
    return line


def test_each_block_is_run_or_has_a_reason():
    blocks = {str(page.relative_to(ROOT)): find_blocks(page) for page in PAGES}
    typed = {name for name, found in blocks.items() if any(begin(block) not in NOT_RUN for block in found)}
    assert typed == set(STORIES)
    firsts = {begin(block) for found in blocks.values() for block in found}
    assert set(NOT_RUN) - firsts == set()


@pytest.fixture
def shell(program: tuple[str, ...], project: Path, environ: dict[str, str]) -> Callable[..., list[tuple[str, int]]]:
    """Type lines into one shell; return each with how it ended."""
    place = project.parent / "bin"
    place.mkdir()
    (place / "relay").write_text(f'#!/bin/sh\nexec {shlex.join(program)} "$@"\n')
    (place / "relay").chmod(0o755)

    def run(lines: list[str], start: Path, env: Mapping[str, str]) -> list[tuple[str, int]]:
        ends = project.parent / "ends"
        text = "\n".join(f"{line}\necho $? >> {shlex.quote(str(ends))}" for line in lines)
        given = {**environ, **env, "PATH": f"{place}:{environ['PATH']}", "PYTHONDONTWRITEBYTECODE": "1"}
        subprocess.run(
            ["bash", "-u", "-c", text], cwd=start, env=given, stdin=subprocess.DEVNULL, timeout=PATIENCE_S, check=True
        )  # pytest shows what it prints
        return list(zip(lines, map(int, ends.read_text().split()), strict=True))

    return run


@pytest.mark.parametrize("name", STORIES if NIGHTLY else ("README.md", "docs/reference/agents.md"))
def test_a_page_runs_as_it_is_typed(name, shell, project, commit, tmp_path):
    story = STORIES[name]
    if story.plan:
        (project / "PLAN.md").write_text(story.plan)
        commit()
    config = tmp_path / "home/.config/relay/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(story.config)
    blocks = [block for block in (story.before, *find_blocks(ROOT / name)) if block and begin(block) not in NOT_RUN]
    wanted: list[tuple[str, int]] = []
    for block in blocks:
        first = begin(block)
        if first in story.between:
            wanted.append((story.between[first], 0))
        lines = [replace(line) for line in block.splitlines()]
        wanted += zip(lines, map(int, story.codes.get(first, (0,) * len(lines))), strict=True)
    sessions = story.sessions or ({"turns": [{"text": "Nobody asks me."}]},)
    with serving(json.dumps({"model": "claude-opus-5-5", "sessions": sessions})) as (server, env):
        ended = shell([line for line, _ in wanted], project if story.plan else project.parent, env)
    assert ended == wanted
    assert [*server.errors, *(server.unplayed if story.sessions else ())] == []
