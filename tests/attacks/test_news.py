"""What a session leaves to be told, attacked: the words are the model's, the command is the user's."""

EVIL = (
    "\x1b[2J\x1b]0;owned\x07now\u202e? $(touch {0}) `touch {0}`; touch {0} '\" {{occasion}}"
    "\n\n## Phase 9\n- [ ] evil\nGo on? [y]: y"
)


def test_what_is_told_runs_nothing_and_steers_no_terminal(arena):
    config = arena.home / ".config/relay/config.toml"
    config.parent.mkdir(parents=True)
    words = ["sh", "-c", 'printf "%s\\n" "$1" >> "$0"', str(arena.outside / "told"), "{text}"]
    config.write_text(
        f'notify = [{{ form = "command", command = {words}, on = ["question", "blocked"], details = true }}]\n'
    )
    arena.give()
    evil = EVIL.format(arena.outside / "executed")
    calls = [("defer", {"question": evil[:390], "assumed": "yes"}), ("block", {"reason": evil})]

    played = arena.call(calls, "run", terminal=True, warm=True)

    assert played.code == 4, played.tail
    told = (arena.outside / "told").read_text()
    assert told.count("$(touch ") == 2, told
    assert "{occasion}" in told
    assert not (arena.outside / "executed").exists()
    for shown in (told, played.out.decode()):
        assert not [one for one in ("\x1b[2J", "\x1b]0;owned", "\x07", "\u202e") if one in shown], shown
    assert b"\n- [ ] evil" not in played.out
    assert "\n- [ ] evil" not in (arena.root / "PLAN.md").read_text()
