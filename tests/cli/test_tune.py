"""`relay lab tune`: what the logs of this repository tell of sessions by how full they are."""

import json

import pytest

from relay.base.errors import ExitCode
from tests.scripts import call

PHASES = 6


def make_phase(n):
    return [
        call("write", path=f"p{n}.txt", content="x\n"),
        call("tick", item=f"{n}.1", evidence="it is there"),
        {"text": "Commit: Do it"},
    ]


@pytest.mark.nightly
def test_tune_says_what_went_wrong_by_context_size(stage):
    phases = "\n".join(f"## Phase {n} — Part {n}\n\n- [ ] Write part {n} — p{n}.txt\n" for n in range(1, PHASES + 1))
    stage.write("PLAN.md", f"# Parts\n\n{phases}")
    stage.commit()
    script = json.dumps({"sessions": [{"turns": make_phase(n)} for n in range(1, PHASES + 1)]})
    assert stage.run(script, unchecked=True).exit_code == ExitCode.DONE

    done = stage.relay("lab", "tune")
    assert (done.returncode, done.stderr) == (0, "")
    assert "These rates cannot advise a line" in done.stdout
    assert "`relay lab compare --arms 60k,100k,none` can." in done.stdout
    found = json.loads(stage.relay("lab", "tune", "--json").stdout)
    assert {band["band"]: band["sessions"] for band in found["rates"]}["orient"] == PHASES
