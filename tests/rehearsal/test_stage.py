"""Which turn a request gets: new conversations, continued ones, retries, side requests."""

from typing import Any

from relay.rehearsal.answer import Performer, PromptUse
from relay.rehearsal.script import parse_script
from relay.rehearsal.stage import Miss, Stage

TWO = """
sessions:
  - {name: first, turns: [{text: A1.}, {text: A2.}, {text: A3.}]}
  - {name: second, turns: [{text: B1.}, {text: B2.}]}
"""
READS = "sessions: [{turns: [{tools: [{name: read, input: {path: a}}]}, {tools: [{name: read, input: {path: b}}]}, "
EMPTY = "sessions: [{turns: [{stop: end_turn}, {text: Sorry.}]}]"
CHOSEN = """
sessions:
  - {name: main, turns: [{text: Main.}]}
  - {name: planner, when: {system_contains: planner, tools_include: [submit]}, turns: [{text: Plan.}]}
  - {name: titles, repeat: true, when: {model_contains: haiku}, turns: [{text: A title.}]}
"""
EXPECTING = """
sessions:
  - turns:
      - {text: A.}
      - expect: {last_message_contains: [now, please], last_message_lacks: secret, tools_include: [tick]}
        text: B.
"""
REPEATING = """
sessions:
  - turns:
      - {repeat: 2, tools: [{name: read, input: {path: f.py}}]}
      - {repeat: forever, text: Round.}
"""
NEXT = """
sessions:
  - {name: p1, then: next, turns: [{text: One.}]}
  - {name: p2, then: next, turns: [{text: Two.}]}
  - {name: p3, turns: [{text: Three.}]}
"""
PLANS: dict[str, Any] = {"system": "You are a planner.", "tools": [{"name": "submit"}]}
TICKS: dict[str, Any] = {"tools": [{"name": "tick"}]}
HAIKU: dict[str, Any] = {"model": "claude-haiku-4-5"}
LONG = f"'{'y' * 80}' … '{'y' * 80}' (400 characters)"
ONE, GO_ON = {"type": "text", "text": "one"}, {"type": "text", "text": "Please continue"}


def make_message(number: int, words: Any) -> dict[str, Any]:
    """Return a message: ``@1_0`` calls, ``#1_0 words`` and ``!1_0 words`` are results, the latter an error."""
    role = "assistant" if number % 2 else "user"
    if words[0] == "@":
        words = [{"type": "tool_use", "id": f"toolu_{words[1:]}_0", "name": "read", "input": {}}]
    elif words[0] in ("#", "!"):
        call, _, text = words[1:].partition(" ")
        error = {"is_error": True} if words[0] == "!" else {}
        words = [{"type": "tool_result", "tool_use_id": f"toolu_{call}_0", "content": text, **error}]
    return {"role": role, "content": words}


Step = tuple[Any, str] | tuple[Any, str, dict[str, Any]]
SCENARIOS: dict[str, tuple[str, list[Step]]] = {
    "two conversations take the sessions in order and interleave": (
        TWO,
        [("one", "A1."), ("two", "B1."), ("one|A1.|on", "A2."), ("two|B1.|on", "B2."), ("one|A1.|on|A2.|on", "A3.")],
    ),
    "the same request again is a retry": (
        TWO,
        [("one", "A1."), ("one", "A1."), ("one|A1.|x", "A2."), ("one|A1.|x", "A2.")],
    ),
    "an opening request is new once its conversation went on": (
        TWO,
        [("same", "A1."), ("same|A1.|x", "A2."), ("same", "B1."), ("same|B1.|y", "B2.")],
    ),
    "a conversation is known by its call ids though its past was rewritten": (
        READS + "{text: The end.}]}]",
        [
            ("begin", "read {'path': 'a'}"),
            ("begin|@1_0|#1_0", "read {'path': 'b'}"),
            ("A summary.|@1_1|#1_1", "The end."),
        ],
    ),
    "when goes before order, and a session that repeats serves for ever": (
        CHOSEN,
        [
            ("x", "A title.", HAIKU),
            ("y", "A title.", HAIKU),
            ("x", "Plan.", PLANS),
            ("z", "Main.", {"system": "planner"}),
        ],
    ),
    "a missing session or turn is said in words": (
        "sessions:\n  - {name: only, turns: [{text: A.}]}\n",
        [
            ("one", "A."),
            ("two", "script.yaml: a new conversation began, but all 1 sessions are played"),
            ("one|A.|more", "script.yaml:2: 'only' has no turn for step 2"),
            ("three|Z.|more", "this conversation has an assistant turn that the rehearsal did not write"),
        ],
    ),
    "every condition that failed is said, and the right request still gets the turn": (
        EXPECTING,
        [
            ("one", "A."),
            (
                "one|A.|now a secret",
                (
                    "script.yaml:5: 'session 1', step 2: last_message lacks 'please'; it is 'now a secret'; "
                    "last_message has 'secret'; it is 'now a secret'; no tool 'tick' is offered"
                ),
            ),
            (
                "one|A.|" + "y" * 400,
                "script.yaml:5: 'session 1', step 2: "
                + "; ".join(f"last_message lacks '{word}'; it is {LONG}" for word in ("now", "please"))
                + "; no tool 'tick' is offered",
            ),
            ("one|A.|now please", "B.", TICKS),
        ],
    ),
    "a result can be expected to be an error": (
        READS.partition(", {tools")[0]
        + ", {expect: {last_result_is_error: true, last_result_contains: gone}, text: I see.}]}]",
        [
            ("one", "read {'path': 'a'}"),
            ("one|@1_0|#1_0 gone", "script.yaml:1: 'session 1', step 2: the last result is not an error: 'gone'"),
            ("one|@1_0|!1_0 gone", "I see."),
        ],
    ),
    "a turn repeats, with its number in each text": (
        REPEATING,
        [
            ("one", "read {'path': 'f.py'}"),
            ("one|@1_0|#1_0", "read {'path': 'f.py'}"),
            ("one|@1_0|#1_0|@1_1|#1_1", "Round."),
            ("one|@1_0|#1_0|@1_1|#1_1|Round.|on", "Round."),
            ("one|@1_0|#1_0|@1_1|#1_1|Round.|on|Round.|on", "Round."),
        ],
    ),
    "after an empty answer a new message gets the next turn": (
        EMPTY,
        [("one", ""), (["one", "Please continue"], "Sorry.")],
    ),
    "after an empty answer to a call a new message gets it as well": (
        READS.partition(", {tools")[0] + ", {stop: end_turn}, {text: Sorry.}]}]",
        [
            ("one", "read {'path': 'a'}"),
            ("one|@1_0|#1_0", ""),
            (["one", make_message(1, "@1_0"), make_message(2, "#1_0"), "Please continue"], "Sorry."),
        ],
    ),
    "a conversation without calls is known by its last answer though its past was rewritten": (
        TWO,
        [("one", "A1."), ("A summary of it.|A1.|on", "A2.")],
    ),
    "after an empty answer a longer message gets it too": (EMPTY, [("one", ""), ([[ONE, GO_ON]], "Sorry.")]),
    "a client that resets plays one session after the other": (NEXT, [("a", "One."), ("b", "Two."), ("c", "Three.")]),
    "a client that never does goes on into the next": (
        NEXT,
        [("a", "One."), ("a|One.|next", "Two."), ("a|One.|next|Two.|next", "Three.")],
    ),
}


def ask(stage: Stage, talk: Any, more: Any = ()) -> str:
    """Return what is answered: the words of a miss, else each text and call."""
    said = [make_message(*one) for one in enumerate(talk.split("|"))] if isinstance(talk, str) else talk
    messages = [one if isinstance(one, dict) else {"role": "user", "content": one} for one in said]
    body = {"model": "m", "messages": messages, **dict(more)}
    cue = stage.cue(body)
    if isinstance(cue, Miss):
        return cue.words
    performer = Performer(cue.turn, f"toolu_{cue.cast}_{cue.step}_", body)
    answer = performer.build_answer("i", "m", PromptUse(input_tokens=1))
    stage.note_answer(cue, answer)
    return " ".join(block.body.get("text") or f"read {block.body['input']}" for block in answer.blocks)


def test_each_request_gets_the_turn_that_the_script_means() -> None:
    for name, (text, steps) in SCENARIOS.items():
        script = parse_script(text)
        stage = Stage(script.source, script.sessions)
        assert [ask(stage, talk, *more) for talk, _, *more in steps] == [step[1] for step in steps], name


def test_what_was_not_played_is_listed() -> None:
    """Sessions that never began and turns that were never reached, with their lines."""
    script = parse_script(TWO + "  - {name: side, repeat: true, when: {system_contains: title}, turns: [{text: T.}]}\n")
    stage = Stage(script.source, script.sessions)
    for talk, more in (("one", {}), ("a", {"system": "a title"}), ("b", {"system": "a title"})):
        ask(stage, talk, more)
    never = "session 'second' (script.yaml:4) never began"
    assert stage.list_unplayed() == (*["script.yaml:3: a turn of 'first' was not played"] * 2, never)
