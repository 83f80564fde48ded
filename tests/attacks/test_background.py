"""A hostile model and what it asks to keep running: it ends with the turn, whatever it did to stay."""

STAY = (
    "trap '' TERM HUP INT; for i in 1 2 3; do (setsid nohup sh -c 'trap \"\" TERM; while :; do "
    "echo x >> stayed; sleep 0.2; done # @ABSTRACT@' &) ; done; sleep 600"
)


def test_nothing_stays_behind_and_nothing_writes_while_the_work_is_checked(arena):
    """The gate sees a file that no longer grows, the commit holds all of it, and no process is left."""
    arena.write("PLAN.md", "## Phase 1\nVerify: `cp stayed was; sleep 1; cmp stayed was; rm was`\n- [ ] a — stayed\n")
    arena.commit()
    turns = [
        {"tools": [{"name": "bash", "input": {"command": STAY, "background": True}}]},
        {"tools": [{"name": "bash", "input": {"command": "test -s stayed && sleep 1"}}]},
        {"tools": [{"name": "tick", "input": {"item": "1.1", "evidence": "it grows"}}]},
        {"text": "Commit: Stay"},
    ]

    played = arena.play([{"turns": turns}, {"turns": [{"text": "Done."}], "repeat": True}], "run")

    assert played.code == 0, played.tail
    assert not arena.is_running(arena.places["ABSTRACT"])
    assert arena.git("show", "HEAD:stayed") == (arena.root / "stayed").read_text()
