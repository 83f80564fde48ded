"""Calling over real HTTP and with real programs: tried again, given up, and never in the way."""

import json
import os
import socket

import pytest

from relay.config.news import Channel
from relay.news.courier import MOST_WAITING, Courier, Newsroom, open_newsroom
from relay.news.forms import Errand, render_news
from relay.news.occasions import News
from relay.session.events import Event, RunEnded, RunStarted

NEWS = News(occasion="blocked", text="exit status 1, $0.42 spent", details="PLAN.md on main · <!channel> & @everyone")
STARTED = RunStarted(
    run_id="r", command="run", model="m", plan_path="PLAN.md", branch="main", sandbox="bwrap", cap_usd=20.0,
    spent_usd=0.0, rehearsed=False,
)  # fmt: skip
ENDED = RunEnded(exit_code=0, reason="All 3 phases are done.", next_command="", spent_usd=0.42)
AT_ONCE = (0.0, 0.0, 0.0)


def deliver(*jobs, wait_s=30.0, channel=Channel(form="json"), **given):  # noqa: B008  # a value
    courier = Courier(waits_s=AT_ONCE, **given)
    for job in jobs:
        courier.send(channel, job)
    courier.close(wait_s)
    return courier.take_failures()


def post(channel, environ=None):
    return render_news(channel, NEWS, environ or {})


SAID = "exit status 1, $0.42 spent · PLAN.md on main · <!channel> & @everyone"
SAFE = SAID.replace("& @", "&amp; @").replace("<!channel>", "&lt;!channel&gt;")


@pytest.mark.parametrize(
    ("form", "body"),
    [
        ("ntfy", SAID),
        ("slack", {"text": f"relay: it needs you: {SAFE}"}),
        ("discord", {"content": f"relay: it needs you: {SAID}", "allowed_mentions": {"parse": []}}),
        ("json", {"occasion": "blocked", "title": "relay: it needs you", "text": SAID}),
    ],
)
def test_what_each_form_sends(endpoint, form, body):  # bodies as they are
    headers = (("Authorization", "Bearer ${TOKEN}"),)
    channel = Channel(form=form, url=endpoint.url.replace("topic", "${TOPIC}"), headers=headers, details=True)
    assert deliver(post(channel, {"TOPIC": "mine", "TOKEN": "t0k"})) == ()
    [(path, sent, data)] = endpoint.seen
    assert (path, sent["Authorization"]) == ("/mine", "Bearer t0k")
    assert (data.decode() if form == "ntfy" else json.loads(data)) == body
    if form == "ntfy":
        assert (sent["Title"], sent["Priority"]) == ("relay: it needs you", "4")


def test_nothing_of_the_repository_is_said_unless_asked(endpoint):
    assert deliver(post(Channel(form="ntfy", url=endpoint.url))) == ()
    assert endpoint.seen[0][2] == b"exit status 1, $0.42 spent"


@pytest.mark.parametrize(
    ("answers", "tries", "failed"),
    [
        ([500, 429, 204], 3, ()),
        (["drop", "nonsense", 200], 3, ()),
        ([503], 4, ("json: answered with 503",)),
        ([404], 1, ("json: answered with 404",)),
        ([302], 1, ("json: answered with 302",)),
    ],
)
def test_what_fails_is_tried_again_or_given_up(endpoint, answers, tries, failed):
    endpoint.answers = answers
    assert deliver(post(Channel(form="json", url=endpoint.url))) == failed
    assert [path for path, *_ in endpoint.seen] == ["/topic"] * tries


def test_nonsense_and_nobody_are_told(endpoint):
    endpoint.answers = ["nonsense"]
    [failed] = deliver(post(Channel(form="json", url=endpoint.url)))
    assert failed.startswith("json: ")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{free.getsockname()[1]}/"
        assert "cannot be reached" in deliver(post(Channel(form="json", url=nobody)))[0]


def test_a_server_that_does_not_answer_holds_nothing_up(endpoint):
    endpoint.answers = ["late"]
    job = post(Channel(form="json", url=endpoint.url))
    failed = deliver(*[job] * (MOST_WAITING + 9), wait_s=0.01)
    assert failed[-1] == "json: no answer by the end of the run"
    assert "json: too much to tell at once" in failed


def test_programs_are_started_without_a_shell(tmp_path):
    script = tmp_path / "call"
    script.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/said\n')
    script.chmod(0o755)
    channel = Channel(form="command", command=(str(script), "{occasion}", "{title}", "{text}", "$(id)"), details=True)
    assert deliver(post(channel)) == ()
    said = (tmp_path / "said").read_text().splitlines()
    assert said == ["blocked", "relay: it needs you", f"{NEWS.text} · {NEWS.details}", "$(id)"]
    script.write_text("#!/bin/sh\nexit 3\n")
    assert deliver(post(channel)) == (f"json: {script} failed with exit status 3",)
    script.write_text("#!/bin/sh\nexec sleep 60\n")
    assert deliver(post(channel), timeout_s=0.1) == (f"json: {script} did not end",)
    assert deliver(Errand(words=("/nonexistent",))) == ("json: there is no program /nonexistent",)
    desktop = post(Channel(form="desktop"))
    assert desktop.words[-2:] == ("relay: it needs you", NEWS.text)


def test_a_run_calls_those_who_want_to_know(endpoint):
    said: list[Event] = []
    urls = [f"{endpoint.url}/{name}" for name in ("done", "red", "${NOWHERE}")]
    channels = [Channel(form="json", url=url, on=(on,)) for url, on in zip(urls, ("done", "red", "done"), strict=True)]
    with open_newsroom(channels, os.environ, str, said.append) as room:
        for event in (STARTED, ENDED):
            room.observe(event)
        assert [event.text for event in room.take_failures()] == [
            "nobody is notified by json: the variable NOWHERE is not set"
        ]
    assert [path for path, *_ in endpoint.seen] == ["/topic/done"]
    assert said == []


def test_a_program_that_is_not_there_is_told_at_the_start_and_once():
    said: list[Event] = []
    missing = Channel(form="command", command=("/nonexistent", "{title}"), on=("done",))
    with open_newsroom([missing], os.environ, str, said.append) as room:
        room.observe(STARTED)
        assert [event.text for event in room.take_failures()] == [
            "nobody is notified by command: there is no program /nonexistent"
        ]
        room.observe(ENDED)
    assert said == []


def test_a_run_that_breaks_off_calls_too_and_hides_secrets(endpoint):
    said: list[Event] = []
    channels = [Channel(form="json", url=endpoint.url, details=True, headers=(("X", "${X}"),))]
    environ = {"X": "fine"}

    def break_off():
        with open_newsroom(channels, environ, lambda text: text.replace("s3cret", "…"), said.append) as room:
            room.observe(STARTED)
            raise RuntimeError("the disk with s3cret is full")

    with pytest.raises(RuntimeError):
        break_off()
    [(_, _, data)] = endpoint.seen
    assert json.loads(data)["text"] == "it could not go on · PLAN.md on main · the disk with … is full"


def test_what_a_variable_cannot_put_into_a_header_is_told():
    courier = Courier(waits_s=())
    room = Newsroom([Channel(form="json", headers=(("X", "${X}"),))], {"X": "a\r\nHost: b"}, str, courier)
    for event in (STARTED, ENDED):
        room.observe(event)
    assert [event.text for event in room.take_failures()] == [
        "nobody is notified by json: a header holds what a header cannot"
    ]
    courier.close(0)
