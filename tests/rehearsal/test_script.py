"""Scripts: what can be written, and what is said about what cannot."""

import contextlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relay.base.errors import ConfigError
from relay.rehearsal.script import FORMAT, MAX_SCRIPT_BYTES, Call, Think, load_script, parse_script

WHOLE = """
model: {id: claude-opus-5-5, window: 50000, max_tokens: 4000}
models: [my-model, {id: claude-haiku-4-5, window: 10}]
delay_s: 0.5
sessions:
  - name: planner
    when: {system_contains: [plan, tools], last_message_lacks: stop}
    repeat: true
    turns:
      - text: [One., Two.]
        thinking: Hm.
        tools:
          - name: write
            input:
              path: a.py
              content: |
                def main():
                    return "ja"
              count: 3
              deep: [1, 2.5, true, null, {a: 2026-11-20}]
        usage: {output_tokens: 100, input_padding_tokens: 7}
        delay_s: 0.25
      - {stop: refusal, repeat: forever}
"""


def test_a_whole_script_is_read() -> None:
    """Every key arrives where it belongs."""
    script = parse_script(WHOLE)
    assert [card.id for card in script.cards][:3] == ["claude-opus-5-5", "my-model", "claude-haiku-4-5"]
    assert (script.cards[0].window_tokens, script.cards[0].output_tokens) == (50_000, 4_000)
    assert script.cards[2].window_tokens == 10
    assert len({card.id for card in script.cards}) == len(script.cards)
    assert script.delay_s == 0.5
    session = script.sessions[0]
    assert (session.name, session.repeat, session.line) == ("planner", True, 6)
    assert (session.when.system_contains, session.when.last_message_lacks) == (("plan", "tools"), "stop")
    first, second = session.turns
    assert first.parts == (
        Think("Hm."),
        "One.",
        "Two.",
        Call(
            line=13,
            name="write",
            input={
                "path": "a.py",
                "content": 'def main():\n    return "ja"\n',
                "count": 3,
                "deep": [1, 2.5, True, None, {"a": "2026-11-20"}],
            },
        ),
    )
    assert (first.usage.output_tokens, first.usage.input_padding_tokens, first.delay_s) == (100, 7, 0.25)
    assert (second.stop, second.parts, second.repeat) == ("refusal", (), "forever")


def test_every_key_is_described() -> None:
    """`relay demo --check` lists them."""
    assert all(words for keys in FORMAT.values() for words in keys.values())


def test_bodies_come_from_files_beside_the_script(tmp_path: Path) -> None:
    """`!file` anywhere."""
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "x.py").write_bytes("x = 'ä'\r\n".encode())
    path = tmp_path / "script.yaml"
    path.write_text(
        """
sessions:
  - turns:
      - text: !file files/x.py
        tools:
          - {name: write, input: {path: x.py, content: !file files/x.py, more: [!file files/x.py]}}
""",
        encoding="utf-8-sig",
    )
    say, call = load_script(path).sessions[0].turns[0].parts
    assert isinstance(call, Call)
    assert say == "x = 'ä'\r\n"
    assert list(call.input) == ["path", "content", "more"]
    assert call.input["content"] == call.input["more"][0] == say


def test_files_stay_beside_the_script(tmp_path: Path) -> None:
    """Neither a path nor a link leads out of the script's directory."""
    inside = tmp_path / "inside"
    inside.mkdir()
    (tmp_path / "secret").write_text("s")
    (inside / "link").symlink_to(tmp_path / "secret")
    path = inside / "script.yaml"
    for name in ("../secret", "/etc/hostname", "link"):
        path.write_text(f"sessions:\n  - turns:\n      - text: !file {name}\n")
        with pytest.raises(ConfigError, match=r"script.yaml:3: .* is outside the script's directory"):
            load_script(path)


TURN = "sessions:\n  - turns:\n      - "
WRONG = {
    "": "1: the script is empty",
    "sessions: [\n": "2: the script is not valid YAML",
    "- a\n": "1: Expected `object`, got `array`",
    "model: x\n": "1: Object missing required field `sessions`",
    "sesions: []\n": "1: Object contains unknown field `sesions`",
    TURN + "text: a\n        text: b\n": "4: the key 'text' is there twice",
    "sessions:\n  - name: x\n": "2: Object missing required field `turns`",
    "sessions:\n  - turns: []\n": "2: the session has no turns",
    TURN + "text: 5\n": "3: text: Expected `str | array`, got `int`",
    TURN + "text: yes\n": "3: 'yes' means another value in YAML; put it in quotes",
    TURN + "text:\n": "3: text: Expected `str | array`, got `null`",
    TURN + "text: ''\n": "3: the text is empty",
    TURN + "expect: {}\n": "3: the turn answers nothing",
    TURN + "text: a\n        usage: {output_tokens: true}\n": "4: output_tokens: Expected `int",
    TURN + "text: a\n        delay_s: -1\n": "4: delay_s: Expected `float` >= 0.0",
    TURN + "tools: [{name: a, input: {x: 0123}}]\n": "3: '0123' means another value in YAML",
    TURN + "tools: [{input: {}}]\n": "3: Object missing required field `name`",
    TURN + "tools: [{name: a, input: []}]\n": "3: input: Expected `object`, got `array`",
    TURN + "text: a\n        repeat: forever\n      - text: b\n": "2: only the last turn of a session can repeat",
    TURN
    + "text: a\n        expect: {result_contains: x}\n": "4: expect: Object contains unknown field `result_contains`",
    TURN + "text: !file a.txt\n": "3: files can only be named by a script that is itself",
    TURN + "text: !!python/name:os.system a\n": "3: 'a' means another value in YAML",
    "model: {window: 5}\n" + TURN + "text: a\n": "1: model: Object missing required field `id`",
    TURN + "tools: [{name: a, input: {x: &x [*x]}}]\n": "3: the script has an anchor",
}


def test_what_is_wrong_is_said_with_its_line() -> None:
    """Found, allowed, and where."""
    for text, words in WRONG.items():
        with pytest.raises(ConfigError) as caught:
            parse_script(text, source="my.yaml")
        assert caught.value.message.startswith("my.yaml:"), text
        assert words in caught.value.message, text


def test_bombs_are_refused() -> None:
    """Aliases that multiply, nesting without end, files without end."""
    levels = "\n".join(f"    a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 9))
    bomb = f"sessions:\n- turns:\n  - tools:\n    - name: x\n      input:\n        z: &a0 [1]\n{levels}"
    with pytest.raises(ConfigError, match="has an anchor"):
        parse_script(bomb)
    with pytest.raises(ConfigError, match=r"script.yaml:1: the script is .*(levels deep|nesting depth)"):
        parse_script("sessions: " + "[" * 60_000 + "]" * 60_000)


def test_a_file_that_is_no_script_is_said_by_name(tmp_path: Path) -> None:
    """Missing, not UTF-8, too large."""
    with pytest.raises(ConfigError, match=r"gone.yaml: .* cannot be read: No such file or directory$"):
        load_script(tmp_path / "gone.yaml")
    (tmp_path / "latin.yaml").write_bytes(b"sessions: \xff")
    with pytest.raises(ConfigError, match=r"latin\.yaml"):
        load_script(tmp_path / "latin.yaml")
    (tmp_path / "large.yaml").write_bytes(b"#" * (MAX_SCRIPT_BYTES + 1))
    with pytest.raises(ConfigError, match="at most"):
        load_script(tmp_path / "large.yaml")


KEYS = ["sessions", "turns", "text", "tools", "name", "input", "model", "id", "when", "repeat"]


@settings(max_examples=40)
@given(
    st.recursive(
        st.text(max_size=5) | st.integers(-3, 3) | st.none() | st.booleans(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=3),
        max_leaves=10,
    )
)
def test_any_yaml_is_read_or_refused(value: Any) -> None:
    """Nothing but `ConfigError` comes out of a script."""
    import yaml

    turn = {"sessions": [{"turns": [value]}]}
    for text in (*map(yaml.safe_dump, (value, {"sessions": value}, turn)), TURN + f"text: {value!r}\n"):
        with contextlib.suppress(ConfigError):
            assert parse_script(text).sessions is not None
