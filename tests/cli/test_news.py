"""A run calls whom the user wants to be called, from the whole program over real HTTP."""

import json

from relay.errors import ExitCode
from tests.news.listener import listen
from tests.scripts import serving

PLAN = "# Hello\n\n## Phase 1 — Hello\nVerify: `grep -q hello hello.txt`\n- [ ] Say hello — hello.txt\n"
SCRIPT = """\
sessions:
  - turns:
      - tools: [{name: tick, input: {item: "1.1", evidence: "it is not so"}}]
      - text: Done.
      - tools: [{name: write, input: {path: hello.txt, content: "hello"}}]
      - text: "Commit: Say hello"
"""
CONFIG = """\
notify = [
  { form = "json", url = "URL", on = ["done", "red"], details = true },
  { form = "slack", url = "${NOT_SET}" },
]
"""


def test_a_red_gate_and_the_end_of_a_run_are_told(relay, project, tmp_path, commit):
    (project / "PLAN.md").write_text(PLAN)
    commit()
    config = tmp_path / "home/.config/relay/config.toml"
    config.parent.mkdir(parents=True)
    with listen() as endpoint, serving(SCRIPT) as (server, env):
        config.write_text(CONFIG.replace("URL", endpoint.url))
        ran = relay("run", env=env)
        told = [json.loads(body) for *_, body in endpoint.seen]
    assert (ran.code, server.errors) == (ExitCode.DONE, [])
    assert [(one["occasion"], one["title"]) for one in told] == [
        ("red", "relay: a gate is red"),
        ("done", "relay: done"),
    ]
    assert "PLAN.md on main · phase 1: " in told[0]["text"]
    assert told[1]["text"].startswith("exit status 0, $0.")
    assert ran.out.count("nobody is notified by slack: the variable NOT_SET is not set") == 1
