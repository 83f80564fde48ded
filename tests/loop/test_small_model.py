"""A small model is told the same in simpler words, where the settings say so of it."""

import re

from relay.base.errors import ExitCode
from relay.prompts.texts import render_runner_system
from relay.tools.toolbox import RUNNER_SPECS

HELLO = """
sessions:
  - turns:
      - expect: {system_contains: ["Example, item", "Be brief."]}
        tools: [{name: write, input: {path: hello.txt, content: "hello\\n"}}]
      - tools: [{name: tick, input: {item: "1.1", evidence: "grep finds it", commit: "Say hello"}}]
"""


def test_both_texts_make_the_same_promises():
    """What the gate, a resume, ticks, records and a hand-over rest on."""
    texts = [render_runner_system("", simple=simple) for simple in (False, True)]
    names = {spec.name for spec in RUNNER_SPECS}
    said = [{word for word in re.findall(r"`(\w+)`", text) if word in names} for text in texts]
    assert said[0] <= said[1]
    for words in (
        "read-only",
        "relay runs them again",
        "skipped or half done",
        "`Commit: <",
        "order to you|instructions",
    ):
        assert [text for text in texts if not re.search(words, text)] == [], words


def test_the_settings_choose_the_text_of_a_model(stage):
    stage.write("relay.toml", '[models."claude-opus-5-5"]\nprompt = "simple"\n')
    stage.commit()

    ended = stage.run(HELLO, all_=False)

    assert (stage.server.errors, ended.exit_code) == ([], ExitCode.DONE), ended
    assert [commit.items for commit in stage.commits()] == [("1.1",)]
