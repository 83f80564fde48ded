"""What `relay plan --revise` changed is shown, and nothing else of the plan."""

import json

from tests.cli.test_run import PLAN
from tests.scripts import serving


def test_the_difference_is_shown(relay, project, commit):
    (project / "PLAN.md").write_text(PLAN)
    commit()
    now = PLAN.replace("Say world — world.txt", "Say world loudly — world.txt")
    script = f"sessions: [{{turns: [{{tools: [{{name: submit_plan, input: {{markdown: {json.dumps(now)}}}}}]}}]}}]"
    with serving(script) as (_, given):
        ran = relay("plan", "--revise", "louder", "-e", env={**given, "EDITOR": "sed -i s/loudly/LOUDLY/"})
    assert (ran.code, ran.err) == (0, "")
    lines = ran.out.splitlines()
    assert "-- [ ] Say world — world.txt" in lines
    assert "+- [ ] Say world LOUDLY — world.txt" in lines
    assert "# Greetings" not in lines
