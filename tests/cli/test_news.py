"""A run calls whom the user wants to be called, from the whole program over real HTTP."""

import json

import pytest

from relay.base.errors import ExitCode
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
  { url = "URL", on = ["done", "red"], details = true },
  { url = "${NOT_SET}" },
]
"""


@pytest.mark.nightly
def test_a_red_gate_and_the_end_of_a_run_are_told(relay, project, tmp_path, commit):
    (project / "PLAN.md").write_text(PLAN)
    commit()
    config = tmp_path / "home/.config/relay/config.toml"
    config.parent.mkdir(parents=True)
    with listen() as endpoint, serving(SCRIPT) as (server, env):
        config.write_text(CONFIG.replace("URL", endpoint.address))
        ran = relay("run", env=env)
        told = [json.loads(body) for *_, body in endpoint.seen]
    assert (ran.code, server.errors) == (ExitCode.DONE, [])
    assert [(one["type"], one["title"]) for one in told] == [
        ("failure", "relay: a gate is red"),
        ("success", "relay: done"),
    ]
    assert "PLAN.md on main · phase 1: " in told[0]["message"]
    assert told[1]["message"].startswith("exit status 0, $0.")
    assert ran.out.count("nobody is notified by ${NOT_SET}: the variable NOT_SET is not set") == 1


@pytest.mark.nightly
def test_each_channel_is_tried_by_hand_anywhere_and_no_secret_is_shown(relay, tmp_path):
    config = tmp_path / "home/.config/relay/config.toml"
    config.parent.mkdir(parents=True)
    outside = tmp_path / "outside"
    outside.mkdir()
    assert relay("doctor", "--notify", cwd=outside).err.startswith("Error: runs notify nobody")
    with listen() as endpoint:
        config.write_text(
            f"""notify = [{{ url = "{endpoint.address}/s3cret-0f-mine" }}, {{ command = ["false"], on = ["red"] }}]\n"""
        )
        config.write_text(config.read_text().replace("false", "true"))
        well = relay("doctor", "--notify", cwd=outside)
        endpoint.answers = [401]
        refused = relay("doctor", "--notify", cwd=outside)
        [told, _] = [json.loads(body) for *_, body in endpoint.seen]
    assert (well.code, well.out.splitlines()) == (
        ExitCode.DONE,
        [
            "json on done, blocked, stopped, limit, cost, question",
            "true on red",
            "json: answered with 200",
            "true: true ended with 0",
        ],
    )
    assert (refused.code, refused.out.splitlines()[2]) == (ExitCode.USER, "json: answered with 401")
    assert (told["title"], told["message"]) == ("relay: a test", "this is what a run would tell you")
    assert "s3cret" not in f"{well} {refused}"
