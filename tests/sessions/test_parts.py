"""What a session is told is told in parts, by size."""

from relay.insight.figures.tallies import TokenSource
from relay.prompts.texts import measure_prompt, render_runner_system
from relay.session.usage import estimate_tokens
from relay.session.values import ToolSpec
from tests.sessions.reference import render as render_events

TOOL = ToolSpec(name="t", description="d", input_schema={"type": "object"})


def test_parts_of_a_first_prompt_have_sources_and_sizes() -> None:
    """Those of the same source are one; rules are told apart from the role; nothing is left out."""
    message = (("plan", "Your phase"), ("environment", "Branch é"), ("plan", "Items"), ("ledger", ""))
    parts = {part["source"]: part for part in measure_prompt(render_runner_system("Be brief."), (TOOL,), message)}
    assert list(parts) == ["system", "tools", "rules", "plan", "environment"]
    assert parts["plan"]["bytes"] == len("Your phase\n\nItems")
    assert parts["environment"]["bytes"] == len("Branch é") + 1
    assert parts["rules"] == {"source": "rules", "bytes": 9, "tokens": estimate_tokens("Be brief.")}
    assert set(parts) <= {source.value for source in TokenSource}
    assert "rules" not in {part["source"] for part in measure_prompt(render_runner_system(""), (), ())}


def test_the_page_of_events_names_every_source() -> None:
    text = render_events()
    assert all(source.value in text for source in (TokenSource.BATON, TokenSource.LEDGER, TokenSource.ENVIRONMENT))
