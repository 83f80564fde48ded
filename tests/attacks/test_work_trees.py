"""Work trees of the same repository: none shows another one's files, whoever made it, beside the other one or in it.

The arena is where a sandbox hides nothing (/opt), as dev containers and CI have their checkouts.
"""

import pytest

from tests.effort import take_each

FILES = {
    ".env": "env-secret\n",
    "config/production.yaml": "production-password\n",
    ".relay/sessions/1.jsonl": "earlier-session\n",
}
NAMES = " -o ".join(f"-name {name.rpartition('/')[2]}" for name in FILES)
PLACES = " ".join(f"@BASE@{name}" for name in ("", "/main", "/other", "/main.relay/1", "/repo/trees/one"))
PEEK = f"pwd; find {PLACES} -type f '(' {NAMES} ')' -exec cat '{{}}' + ; true"
CALLS = (
    ("bash", {"command": PEEK}),
    ("read", {"path": "trees/one/config/production.yaml"}),
)
WAYS = {
    "run": ("run",),
    "plan": ("plan", "feature", "--force"),
    "gate": ("gate", "4"),
    "sandbox": ("shell", "--", PEEK),
}


def fill(place):
    """Put what nobody else is to be shown into a work tree; git ignores it there."""
    for name, text in FILES.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text)


def prepare(arena):
    """Have the repository name what is unreadable, and a gate that looks for it."""
    arena.write("relay.toml", 'paths.hide = ["config/production.yaml"]\n')
    arena.write(".gitignore", ".env\nvendor/\n.relay/\nnode_modules/\nconfig/\ntrees/\n")
    plan = (arena.root / "PLAN.md").read_text()
    arena.write("PLAN.md", arena.fill(f"{plan}\n## Phase 4 — Look\nVerify: `{PEEK}; false`\n- [ ] Look\n"))
    arena.commit()


def play(arena, *words, warm=True):
    """Have a session, or what is typed, look for it; return what of it was shown, and all that was."""
    turns = [{"tools": [{"name": name, "input": given}]} for name, given in CALLS]
    done = {"turns": [{"text": "Done."}], "repeat": True}
    played = arena.play([{"turns": [*turns, {"text": "Done."}]}, done], *arena.fill(words), warm=warm)
    text = "\n".join((played.out.decode(), *(got.text for got in played.got)))
    assert str(arena.base) in text, played.tail
    return [secret.strip() for secret in FILES.values() if secret in text], text


@pytest.mark.nightly
def test_a_job_is_not_shown_the_work_tree_where_it_was_ordered(arena):
    """A job for real: a child of relay's own in a work tree of its own, beside the repository."""
    prepare(arena)
    fill(arena.root)
    arena.give()

    shown, text = play(arena, "run", "--jobs", "2", warm=False)

    assert f"{arena.root}.relay/1" in text
    assert shown == []


def link(arena):
    """Make the arena's repository a linked work tree of one beside it, which has another one, and a job's."""
    prepare(arena)
    main, other, jobs = (arena.base / name for name in ("main", "other", "main.relay/1"))
    arena.root.rename(main)
    for place in (arena.root, other, jobs):
        arena.git("worktree", "add", "-q", "-b", place.name, str(place), at=main)
    for place in (main, other, jobs):
        fill(place)
    arena.give()


@pytest.mark.parametrize("way", take_each(4, WAYS))
def test_a_linked_work_tree_is_not_shown_the_others(arena, way):
    """Neither the main one nor a further one, nor the jobs' of those."""
    link(arena)

    shown, text = play(arena, *WAYS[way])

    assert str(arena.root) in text
    assert shown == []


@pytest.mark.nightly
@pytest.mark.parametrize("way", WAYS)
def test_the_main_work_tree_is_not_shown_those_that_lie_in_it(arena, way):
    """Nor those beside it."""
    prepare(arena)
    for place in (arena.root / "trees/one", arena.base / "other"):
        arena.git("worktree", "add", "-q", "-b", place.name, str(place))
        fill(place)
    arena.give()

    shown, text = play(arena, *WAYS[way])

    assert str(arena.root) in text
    assert shown == []
