"""Which turn a request gets: new conversations, continued ones, retries, side requests."""

from typing import Any

import pytest

from tests.endpoint.table import answer
from tests.sdks import anthropic


def user(words: str) -> dict[str, Any]:
    return {"role": "user", "content": words}


def said(words: str) -> dict[str, Any]:
    return {"role": "assistant", "content": words}


def last_text(message: Any) -> str:
    return str(next(block.text for block in message.content if block.type == "text"))


TWO = """
sessions:
  - {name: first, turns: [{text: A1.}, {text: A2.}, {text: A3.}]}
  - {name: second, turns: [{text: B1.}, {text: B2.}]}
"""


def test_new_conversations_take_the_sessions_in_order_and_interleave(play: Any) -> None:
    """Two conversations at once, each continued by the messages before its last answer."""
    table = play(TWO)
    assert last_text(table.ask([user("one")])) == "A1."
    assert last_text(table.ask([user("two")])) == "B1."
    assert last_text(table.ask([user("one"), said("A1."), user("go on")])) == "A2."
    assert last_text(table.ask([user("two"), said("B1."), user("go on")])) == "B2."
    long = [user("one"), said("A1."), user("go on"), said("A2."), user("and on")]
    assert last_text(table.ask(long)) == "A3."
    assert table.player.unplayed == ()


def test_the_same_request_again_is_a_retry(play: Any) -> None:
    """A client whose connection broke gets the same turn, at any place of the conversation."""
    table = play(TWO)
    for _ in range(3):
        assert last_text(table.ask([user("one")])) == "A1."
    for _ in range(2):
        assert last_text(table.ask([user("one"), said("A1."), user("x")])) == "A2."
    assert table.player.errors == []


def test_an_opening_request_is_new_once_its_conversation_went_on(play: Any) -> None:
    """Two sessions may begin with the same words, one after the other."""
    table = play(TWO)
    assert last_text(table.ask([user("same")])) == "A1."
    assert last_text(table.ask([user("same"), said("A1."), user("x")])) == "A2."
    assert last_text(table.ask([user("same")])) == "B1."
    assert last_text(table.ask([user("same"), said("B1."), user("y")])) == "B2."


def test_conversations_are_known_by_call_ids_though_their_past_was_rewritten(play: Any) -> None:
    """Clients that prune or summarise older messages still go on where they were."""
    table = play(
        """
sessions:
  - turns:
      - {tools: [{name: read, input: {path: a}}]}
      - {tools: [{name: read, input: {path: b}}]}
      - {text: The end.}
"""
    )
    model = {"model": "claude-sonnet-5"}
    first = table.ask([user("begin")], **model)
    second = table.ask([user("begin"), *answer(first)], **model)
    rewritten = [user("A summary of what was done."), *answer(second, "other words")]
    assert last_text(table.ask(rewritten, **model)) == "The end."


def test_sessions_can_be_chosen_by_content(play: Any) -> None:
    """`when` goes before order, and a session that repeats serves side requests for ever."""
    table = play(
        """
sessions:
  - {name: main, turns: [{text: Main.}]}
  - {name: planner, when: {system_contains: planner, tools_include: [submit]}, turns: [{text: Plan.}]}
  - {name: titles, repeat: true, when: {model_contains: haiku}, turns: [{text: A title.}]}
"""
    )
    tools = [{"name": "submit", "input_schema": {"type": "object"}}]
    for words in ("x", "y", "z"):
        title = table.ask([user(words)], model="claude-haiku-4-5")
        assert last_text(title) == "A title."
    assert last_text(table.ask([user("x")], system="You are a planner.", tools=tools)) == "Plan."
    assert last_text(table.ask([user("x")], system="You are a planner.")) == "Main."


def test_a_missing_session_or_turn_is_said_in_words(play: Any) -> None:
    """Also in `errors`, with the line of the script."""
    table = play("sessions:\n  - {name: only, turns: [{text: A.}]}\n")
    table.ask([user("one")])
    with pytest.raises(anthropic.BadRequestError, match="all 1 sessions are played"):
        table.ask([user("two")])
    with pytest.raises(anthropic.BadRequestError, match=r"script.yaml:2: 'only' has no turn for step 2"):
        table.ask([user("one"), said("A."), user("more")])
    with pytest.raises(anthropic.BadRequestError, match="did not write"):
        table.ask([user("three"), said("Z."), user("more")])
    assert len(table.player.errors) == 3


def test_a_failed_expectation_is_said_in_words(play: Any) -> None:
    """Every condition that failed, with what was there instead; the right request still gets the turn."""
    table = play(
        """
sessions:
  - turns:
      - {text: A.}
      - expect:
          last_message_contains: [now, please]
          last_message_lacks: secret
          tools_include: [tick]
        text: B.
"""
    )
    table.ask([user("one")])
    tools = [{"name": "tick", "input_schema": {"type": "object"}}]
    with pytest.raises(anthropic.BadRequestError) as caught:
        table.ask([user("one"), said("A."), user("now a secret")])
    for words in ("script.yaml:5", "lacks 'please'", "has 'secret'", "no tool 'tick'"):
        assert words in caught.value.message
    assert len(table.player.errors) == 1
    fine = table.ask([user("one"), said("A."), user("now please")], tools=tools)
    assert last_text(fine) == "B."


def test_results_can_be_expected_to_be_errors(play: Any) -> None:
    """`last_result_is_error` looks at the results after the last answer."""
    table = play(
        """
sessions:
  - turns:
      - {tools: [{name: read, input: {}}]}
      - {expect: {last_result_is_error: true, last_result_contains: gone}, text: I see.}
"""
    )
    first = table.ask([user("one")])
    more = [user("one"), *answer(first, "it is gone")]
    with pytest.raises(anthropic.BadRequestError, match="last result is not an error"):
        table.ask(more)
    more[-1]["content"][0]["is_error"] = True
    assert last_text(table.ask(more)) == "I see."


def test_turns_repeat_and_count(play: Any) -> None:
    """A number, then for ever, with the repetition's number in any text."""
    table = play(
        """
sessions:
  - turns:
      - {repeat: 2, tools: [{name: read, input: {path: "f${n}.py", list: ["${n}"]}}]}
      - {repeat: forever, text: "Round ${n}."}
"""
    )
    messages = [user("one")]
    for n in (1, 2):
        message = table.ask(messages)
        assert message.content[-1].input == {"path": f"f{n}.py", "list": [str(n)]}
        messages += answer(message)
    for n in range(1, 6):
        message = table.ask(messages)
        assert last_text(message) == f"Round {n}."
        messages += [said(f"Round {n}."), user("on")]


@pytest.mark.parametrize("form", ["a new message", "the same message"])
def test_after_an_empty_answer_the_client_asks_again(play: Any, form: str) -> None:
    """There is no assistant turn to send back: the next turn comes all the same."""
    table = play("sessions: [{turns: [{stop: end_turn}, {text: Sorry.}]}]")
    assert table.ask([user("one")]).content == []
    block = {"type": "text", "text": "one"}
    again = {"type": "text", "text": "Please continue"}
    one = [{"role": "user", "content": [block, again]}]
    two = [user("one"), user("Please continue")]
    assert last_text(table.ask(two if form == "a new message" else one)) == "Sorry."


def test_what_was_not_played_is_listed(play: Any) -> None:
    """Sessions that never began and turns that were never reached, with their lines."""
    table = play(TWO + "  - {name: side, repeat: true, when: {system_contains: title}, turns: [{text: T.}]}\n")
    table.ask([user("one")])
    for words in "abc":
        table.ask([user(words)], system="a title")
    unplayed = table.player.unplayed
    assert any("'second'" in words and "script.yaml:4" in words for words in unplayed)
    assert len(unplayed) == 3


def test_a_conversation_can_go_on_into_the_next_session(play: Any) -> None:
    """One script plays for clients that reset and for clients that never do."""
    script = """
sessions:
  - {name: p1, then: next, turns: [{text: One.}]}
  - {name: p2, then: next, turns: [{text: Two.}]}
  - {name: p3, turns: [{text: Three.}]}
"""
    resetting = play(script)
    assert [last_text(resetting.ask([user(name)])) for name in "abc"] == ["One.", "Two.", "Three."]
    continuous, messages, texts = play(script), [user("a")], []
    for _ in range(3):
        texts.append(last_text(continuous.ask(messages)))
        messages += [said(texts[-1]), user("next phase")]
    assert texts == ["One.", "Two.", "Three."]
    assert continuous.player.unplayed == ()
