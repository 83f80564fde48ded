"""What commands print with --json is what docs/reference/json.md says, and has a version."""

from pathlib import Path

from relay.base.errors import ExitCode
from tests.cli.documents import DOCUMENTS, read_document
from tests.scripts import serving

PLAN = """\
# Hello

## Phase 1 — Hello
Verify: `grep -q hello hello.txt`
- [ ] Say hello — hello.txt

## Phase 2 — World
After: 1
Runner: api
Verify: `grep -q world world.txt`
- [ ] Say world — world.txt
"""
RECORD = {"claim": "hello.txt greets", "kind": "decision", "because": "it was asked for", "sources": ["PLAN.md:3-5"]}
SCRIPT = f"""\
sessions:
  - turns:
      - tools: [{{name: record, input: {RECORD}}}]
      - tools: [{{name: defer, input: {{question: "Which port?", assumed: "8080"}}}}]
      - tools: [{{name: write, input: {{path: hello.txt, content: "hello"}}}}]
      - tools: [{{name: tick, input: {{item: "1.1", evidence: "wrote it"}}}}]
      - text: "Commit: Say hello"
  - turns:
      - tools: [{{name: tick, input: {{item: "2.1", evidence: "not so"}}}}]
      - {{text: Done., repeat: 4}}
"""


def test_what_commands_print_is_documented(relay, project, commit, doctor):
    (project / "PLAN.md").write_text(PLAN)
    commit()

    def read(command, *words, code=0, at=relay):
        ran = at(*words, "--json")
        assert ran.code == code, ran
        return read_document(command, ran.out or ran.err)

    before = read("relay check", "check")
    assert before["parallel"]
    read("any command that ends with 1", "ledger", "list", "c000", code=ExitCode.USER)
    with serving(SCRIPT) as (server, env):
        ran = relay("run", "--sandbox", "off", env={**env, "RELAY_MAX_REPAIRS": "0"})
        assert (ran.code, server.errors) == (ExitCode.STOPPED, [])
        tried = relay("doctor", "--model", "claude-opus-5-5", "--json", env=env)
        shown = relay("doctor", "--model", "claude-opus-5-5", env={**env, "RELAY_RUNNER": "claude"}).out
    found = read_document("relay doctor", tried.out)
    assert "table" in found
    assert found["findings"]
    assert [finding["name"] for finding in found["findings"] if finding["name"] not in shown] == []
    stands = read("relay status", "status")
    assert stands["last_run"]["gate"]["checks"]
    assert stands["questions"]
    (claim,) = read("relay ledger list", "ledger", "list")["claims"]
    assert claim["sources"]
    assert read("relay ledger list", "ledger", "list", claim["id"])["claims"][0]["explanation"]
    assert read("relay doctor", "doctor", "--agent", code=ExitCode.USER)["agents"]
    read("relay doctor", at=doctor, code=ExitCode.USER)
    assert read("relay doctor", "doctor", "--sandbox")["sandbox"]


def test_each_document_is_held_against_its_page_somewhere():
    here = {path: path.read_text() for path in Path(__file__).parents[1].rglob("test_*.py")}
    assert [name for name in DOCUMENTS if not any(f'"{name}"' in text for text in here.values())] == []
