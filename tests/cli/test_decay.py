"""A context's decay, in a whole run: what the view and the report say is what the requests say, by hand."""

import json
from pathlib import Path

import pytest

from relay.base.errors import ExitCode
from relay.base.interrupts import Urgency
from relay.session.events import Noticed, ResponseReceived, ToolFinished
from relay.session.usage import estimate_tokens
from tests.endpoint.script import parse_script
from tests.endpoint.server import serve
from tests.report.reading import Reader
from tests.terminal import answer_at_terminal

LINE = 60_000


def call(name, **given):
    return {"tools": [{"name": name, "input": given}]}


def yes(n):
    return call("bash", command=f"yes | head -c {n}")


TURNS = [
    call("read", path="notes.txt"),
    yes(30_000),
    yes(30_001),
    yes(30_002),
    call("read", path="big.py"),
    call("write", path="world.txt", content="line of code 7 = 7\n"),
    call("tick", item="2.1", evidence="it is there"),
    yes(200),
    yes(201),
    call("hand_off", next_step="2.2", learned=[], dead_ends=[]),
]
FIRST = [
    call("write", path="hello.txt", content="hello\n"),
    call("tick", item="1.1", evidence="x"),
    {"text": "Commit: Hello"},
]
LAST = [
    call("write", path="world.txt", content="world\nworld\n"),
    call("tick", item="2.2", evidence="x"),
    {"text": "Commit: World"},
]
SCRIPT = json.dumps({"sessions": [{"turns": turns} for turns in (FIRST, TURNS, LAST)]})


@pytest.fixture
def project(stage):
    stage.write("notes.txt", "a short note\n")
    stage.write("big.py", "".join(f"line of code {n} = {n}\n" for n in range(900)))
    stage.commit()
    return stage


def list_session(requests, number):
    """Return the requests of the n-th session, which begins where a conversation has one message."""
    posted = [r for r in requests if r.path == "/v1/messages" and r.usage is not None]
    starts = [n for n, r in enumerate(posted) if len(r.body["messages"]) == 1] + [len(posted)]
    return posted[starts[number] : starts[number + 1]]


@pytest.mark.nightly
def test_each_figure_is_the_one_by_hand(project):
    """Nothing but the requests and the endpoint's counts, added up here."""
    ended = project.run(SCRIPT, reset_at=str(LINE))
    assert ended.exit_code == ExitCode.DONE, ended
    sent = list_session(project.server.requests, 1)
    used = [r.usage for r in sent]
    prompts = [u["input_tokens"] + u["cache_read_input_tokens"] + u["cache_creation_input_tokens"] for u in used]
    contexts = [prompt + u["output_tokens"] for prompt, u in zip(prompts, used, strict=True)]
    results = [later - before for before, later in zip(contexts, prompts[1:], strict=False)]
    assert len(sent) == len(TURNS)

    [found] = [
        session
        for run in json.loads(project.relay("report", "--json").stdout)["runs"]
        for session in run["sessions"][1:2]
    ]
    decay = found["decay"]
    history = contexts[-1] - prompts[0]
    assert decay["history_tokens"] == history
    assert decay["history_share"] == pytest.approx(history / (LINE - prompts[0]))
    assert decay["growth_tokens"] == pytest.approx(history / len(sent))
    assert decay["turns_left"] == int((LINE - contexts[-1]) // (history / len(sent)))

    body = sent[0].body
    described = [[tool["name"], tool["description"], tool["input_schema"]] for tool in body["tools"]]
    front = estimate_tokens(body["system"][0]["text"]) + estimate_tokens(json.dumps(described), json=True)
    whole = front + estimate_tokens(body["messages"][0]["content"][0]["text"])
    assert decay["distance_tokens"] == pytest.approx(contexts[-1] - prompts[0] * front / whole, abs=20)

    # The three floods of `y` are large and nobody names a line of them; the code is named by the line that was copied.
    assert decay["unused_tokens"] == sum(results[1:4]) > 20_000
    assert (decay["superseded_tokens"], decay["cut_tokens"]) == (0, 0)
    assert decay["signal"] == pytest.approx(1 - sum(results[1:4]) / history)
    assert decay["signal"] < 0.3
    [files] = [one for one in decay["retrieved"] if one["kind"] == "file"]
    assert (files["shown"], files["used"]) == (2, 1)
    assert files["tokens"] == pytest.approx(results[0] + results[4], abs=10)  # of a tiny result some is of no source

    answers = [event for event in project.seen(ResponseReceived) if event.turn][3 : 3 + len(sent)]
    assert answers[-1].turns_left == decay["turns_left"]


def read_page(project):
    """Return the texts of the report's page."""
    return " | ".join(Reader(Path(project.relay("report").stdout.strip()).read_text()).texts)


@pytest.mark.nightly
def test_a_person_sees_it_in_the_view_the_report_and_tune(project):
    """One line while it works; behind it a table with a mark where a figure is beyond its threshold, and its source."""
    with serve(parse_script(SCRIPT)) as server:
        environ = {
            "ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": server.base_url, "TERM": "xterm", "COLUMNS": "120",
            "LINES": "40",
        }  # fmt: skip
        argv = [*project.find_program(), "run", "--reset-at", str(LINE)]
        shown, code = answer_at_terminal(argv, [], cwd=project.root, environ=environ, prompt="never asked")
    assert code == ExitCode.DONE, shown
    assert "turns to the line" in shown
    text = read_page(project)
    assert "State of each context at its last answer" in text
    assert "What sessions were shown, and used" in text
    assert "below 70%" in text
    assert "ContextSpectre" in text
    assert "% !" in text
    tuned = project.relay("lab", "tune").stdout
    assert "What sessions were shown, and used\n" in tuned
    assert "of 2 files read, of which a later call names a line or the path" in tuned
    use = json.loads(project.relay("lab", "tune", "--json").stdout)["use"]
    assert {one["kind"] for one in use} >= {"file", "history"}


@pytest.mark.nightly
def test_a_note_too_large_for_its_layer_says_so_and_loses_its_middle(project):
    """Before the next session is paid for: by the check, and by the run, with the command that shows the whole note."""
    learned = [f"finding {n}: {'x' * 1_000}" for n in range(20)]
    parted = [
        call("write", path="world.txt", content="world\n"),
        call("tick", item="2.1", evidence="x"),
        call("hand_off", next_step="2.2", learned=learned, dead_ends=[]),
    ]
    calls = [turn for turn in (*FIRST, *parted) if "tools" in turn]

    def stop_behind_the_last():
        if len(project.seen(ToolFinished)) == len(calls):
            project.interrupts.request(Urgency.FINISH_TURN)

    project.on_tool = stop_behind_the_last
    script = json.dumps({"sessions": [{"turns": FIRST}, {"turns": parted}]})
    assert project.run(script).exit_code == ExitCode.INTERRUPTED
    project.calm()
    words = "the handoff note for phase 2 takes about 5,"
    checked = project.relay("check").stdout
    assert words in checked
    assert "and should take 5,000" in checked

    assert project.run(json.dumps({"sessions": [{"turns": LAST}]})).exit_code == ExitCode.DONE
    [said] = [event.text for event in project.seen(Noticed) if words in event.text]
    whole = project.git(*said.rpartition("`git ")[2].partition("`")[0].split())
    assert all(entry in " ".join(whole.split()) for entry in learned)
    first = list_session(project.server.requests, 0)[0].body["messages"][0]["content"][0]["text"]
    assert "finding 0:" in first
    assert "finding 10:" not in first
    assert "finding 19:" in first
    [layers] = [
        session["layers"]
        for session in json.loads(project.relay("report", "--run", "--json").stdout)["runs"][0]["sessions"]
    ]
    [note] = [layer for layer in layers if layer["name"] == "handoff note"]
    assert (note["most_tokens"], note["cut_tokens"] > 0) == (5_000, True)
    assert "Layers of the contexts at their last answers" in read_page(project)
