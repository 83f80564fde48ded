"""What `relay plan --revise` changed is shown, and nothing else of the plan."""

import json

from relay.rehearsal.script import parse_script
from relay.rehearsal.server import serve
from tests.cli.test_run import PLAN, git


def test_the_difference_is_shown(relay, project, environ):
    (project / "PLAN.md").write_text(PLAN)
    git(project, environ, "add", "-A")
    git(project, environ, "commit", "-q", "-m", "plan")
    now = PLAN.replace("Say world — world.txt", "Say world loudly — world.txt")
    script = f"sessions: [{{turns: [{{tools: [{{name: submit_plan, input: {{markdown: {json.dumps(now)}}}}}]}}]}}]"
    with serve(parse_script(script)) as server:
        given = {"ANTHROPIC_BASE_URL": server.base_url, "ANTHROPIC_API_KEY": "k", "NO_PROXY": "*"}
        ran = relay("plan", "--revise", "louder", "-e", env={**given, "EDITOR": "sed -i s/loudly/LOUDLY/"})
    assert (ran.code, ran.err) == (0, "")
    lines = ran.out.splitlines()
    assert "-- [ ] Say world — world.txt" in lines
    assert "+- [ ] Say world LOUDLY — world.txt" in lines
    assert "# Greetings" not in lines
