"""`relay run --jobs N` under caps of any size: it ends, and says what would be enough."""

import json

import pytest

from tests.endpoint.script import parse_script
from tests.endpoint.server import serve
from tests.phases.test_jobs import PLAN, commit_plan, done_beside, is_whole, repair, run, start, tool, write_phase


@pytest.mark.nightly
@pytest.mark.parametrize("cap", ["0", "0.14"])
def test_a_phase_for_which_too_little_is_left_stops(stage, cap):
    """One is to be begun, one to be merged by a session. Neither is started twice for the same money."""
    commit_plan(stage, PLAN.replace("After: 1, 2", "After: none"))
    for n in (1, 2):
        done_beside(stage, str(n), files={"shared.txt": f"from {n}\n"})
    both = tool("bash", command="printf 'from 1\\nfrom 2\\n' > shared.txt")
    mend = repair(tool("read", path="shared.txt"), both, contains="could not merge shared.txt")
    script = json.dumps({"sessions": [{**session, "repeat": True} for session in (write_phase(3), mend)]})
    code, out, asked = 4, f"next: relay run --max-cost {cap}", 0
    while code == 4 and " --max-cost " in out.splitlines()[-1]:
        cap, before = out.rsplit(maxsplit=1)[-1], float(cap)
        assert float(cap) >= before
        with serve(parse_script(script)) as server:
            child = start(stage, server, "--max-cost", cap)
            out, code = child.communicate()[0], child.returncode
            asked = sum(request.path == "/v1/messages" for request in server.requests)
        assert server.errors == []
        assert out.count(" started: ") + out.count(" merging: ") <= 3 + asked, out
    assert code == 0, out
    assert is_whole(stage)


@pytest.mark.nightly
def test_behind_a_cap_of_tokens_no_command_is_named(stage):
    """No `--max-cost` lets the request go, and the same command would meet the same cap again."""
    commit_plan(stage, PLAN.replace("{{verify", "{{max_tokens_total: 10, verify"))
    code, out, server = run(stage, [], "--max-cost", "5")
    assert (code, [request for request in server.requests if request.path == "/v1/messages"]) == (4, [])
    assert "RELAY_MAX_TOKENS_TOTAL raises it" in out
    assert "next: " not in out
