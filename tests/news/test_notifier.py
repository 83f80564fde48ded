"""Calling over real HTTP and with real programs: tried again, given up, and never in the way."""

import json
import os
import socket
import sys
import time

import pytest

from relay.base.hints import advise_extra
from relay.config.news import Channel
from relay.news import call
from relay.news import notifier as notifiers
from relay.news.notifier import (
    LAST_S,
    WAITS_S,
    CallEnd,
    News,
    Notifier,
    Sender,
    open_notifier,
    render_news,
)
from relay.session.events import Event, RunEnded, RunStarted
from tests.news.listener import listen
from tests.test_program import is_alive, waits
from tests.waiting import wait_until

NEWS = News(occasion="blocked", text="exit status 1, $0.42 spent", details="PLAN.md on main · <!channel> & @everyone")
STARTED = RunStarted(
    run_id="r", command="run", model="m", plan_path="PLAN.md", branch="main", sandbox="bwrap", cap_usd=20.0,
    spent_usd=0.0, rehearsed=False,
)  # fmt: skip
ENDED = RunEnded(exit_code=0, reason="All 3 phases are done.", next_command="", spent_usd=0.42)
AT_ONCE = (0.0, 0.0, 0.0)
SECRET = "s3cr3t-0f-mine"


def deliver(*jobs, wait_s=30.0, waits_s=AT_ONCE):
    sender = Sender(waits_s=waits_s)
    for job in jobs:
        sender.send("news", job)
    sender.close(wait_s)
    return sender.take_ends()


def post(url, environ=None, **given):
    return render_news(Channel(url=url, **given), NEWS, environ or {})


def reached(words="answered with 200"):
    return (CallEnd(name="news", reached=True, words=words),)


def lost(words):
    return (CallEnd(name="news", reached=False, words=words),)


def test_a_service_is_told_by_a_name_that_none_refuses(endpoint):
    """Python's own name in the User-Agent is refused by Discord's edge; whole channels are called by no text."""
    url = endpoint.address.replace("topic", "${TOPIC}?+Authorization=Bearer%20${TOKEN}")
    job = post(url, {"TOPIC": "mine", "TOKEN": SECRET}, details=True)
    assert deliver(job) == reached()
    [(path, sent, data)] = endpoint.seen
    assert (path, sent["Authorization"], sent["User-Agent"]) == ("/mine", f"Bearer {SECRET}", "relay")
    body = json.loads(data)
    assert (body["title"], body["type"]) == ("relay: it needs you", "failure")
    assert body["message"] == "exit status 1, $0.42 spent · PLAN.md on main · ‹!channel› & \uff20everyone"
    assert (
        deliver(post(endpoint.address.replace("json", "ntfy"))) == reached()
    )  # nothing of the repository unless asked
    assert json.loads(endpoint.seen[1][2])["message"] == "exit status 1, $0.42 spent"


def test_what_fails_is_tried_again_or_given_up(endpoint):
    for answers, tries, answer in (
        ([500, "later", 204], 3, reached("answered with 204")),
        (["drop", "nonsense", 200], 3, reached()),
        ([503], 4, lost("answered with 503")),
        ([302], 1, lost("answered with 302")),
        (["endless"], 1, lost("answered with more than anybody reads")),
    ):
        endpoint.answers, endpoint.seen = answers.copy(), []
        waits = (0.0, 60.0) if "later" in answers else AT_ONCE  # it says itself that a second is enough
        assert deliver(post(f"{endpoint.address}/{SECRET}"), waits_s=waits) == answer, answers
        assert [path for path, *_ in endpoint.seen] == [f"/topic/{SECRET}"] * tries, answers


def test_who_cannot_be_told_is_said_without_the_address():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        nobody = post(f"json://user:{SECRET}@127.0.0.1:{free.getsockname()[1]}/{SECRET}")
        found = deliver(nobody, post(f"nosuch://{SECRET}"))
    assert [one.words for one in found] == [
        "no answer: [Errno 111] Connection refused",
        "Apprise knows no service of this address, or needs another package for it",
    ]


def test_the_end_waits_for_the_last_message_and_for_nobody_else(endpoint, monkeypatch):
    """All are on their way side by side: one that does not answer keeps none from its three further tries."""
    assert sum(WAITS_S) < LAST_S
    monkeypatch.setattr(notifiers, "MOST_CALLS", 4)
    endpoint.answers = ["late"]
    with listen() as other:
        other.answers = [500, 500, 500, 200]
        silent = [post(endpoint.address)] * 4
        sender = Sender(waits_s=AT_ONCE)
        sender.send("last", post(other.address))
        for job in silent:
            sender.send("silent", job)
        deadline = time.monotonic() + 60
        found: tuple[CallEnd, ...] = ()
        while not any(one.name == "last" for one in found) and time.monotonic() < deadline:
            found += sender.take_ends()
        sender.close(0)
        found += sender.take_ends()
    assert CallEnd(name="last", reached=True, words="answered with 200") in found
    assert CallEnd(name="silent", reached=False, words="too much to tell at once") in found
    assert [one.words for one in found].count("given up at the end of the run") == 3


def test_programs_are_started_without_a_shell(tmp_path):
    script = tmp_path / "call"
    script.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/said\n')
    script.chmod(0o755)
    channel = Channel(command=(str(script), "{occasion}", "{title}", "{text}", "$(id)"), details=True)
    job = render_news(channel, NEWS, {})
    assert deliver(job) == reached(f"{script} ended with 0")
    said = (tmp_path / "said").read_text().splitlines()
    assert said == ["blocked", "relay: it needs you", f"{NEWS.text} · {NEWS.details}", "$(id)"]
    script.write_text(f"#!/bin/sh\necho >> {tmp_path}/tries\nexit 3\n")
    assert deliver(job) == lost(f"{script} ended with 3")
    assert (tmp_path / "tries").read_text() == "\n" * 4
    assert deliver({"words": ["/nonexistent"]}) == lost("/nonexistent cannot be started: No such file or directory")
    script.write_text(f"#!/bin/sh\necho $PPID $$ > {tmp_path}/pid\nexec sleep 600\n")
    sender = Sender(waits_s=AT_ONCE)
    sender.send("program", job)
    wait_until(lambda: (tmp_path / "pid").exists() and len((tmp_path / "pid").read_text().split()) == 2)
    caller, pid = (tmp_path / "pid").read_text().split()
    wait_until(lambda: waits(caller))
    sender.close(0)
    assert [end.words for end in sender.take_ends()] == ["given up at the end of the run"]
    wait_until(lambda: not is_alive(pid))
    desktop = render_news(Channel(form="desktop"), NEWS, {})
    assert desktop["words"][-2:] == ["relay: it needs you", NEWS.text]


def test_a_program_that_hangs_is_given_up(monkeypatch, capsys):
    monkeypatch.setattr(call, "PROGRAM_S", 0.05)
    assert not call.start_program(words=["sleep", "60"], waits_s=AT_ONCE)
    assert capsys.readouterr().out == "sleep did not end in 0.05 s\n"


def test_a_run_calls_those_who_want_to_know(endpoint):
    said: list[Event] = []
    urls = [f"{endpoint.address}/{name}" for name in ("done", "red", "${NOWHERE}")]
    channels = [Channel(url=url, on=(on,)) for url, on in zip(urls, ("done", "red", "done"), strict=True)]
    channels.append(Channel(command=("/nonexistent", "{title}"), on=("done",)))
    with open_notifier(channels, os.environ, str, said.append) as notifier:
        for event in (STARTED, ENDED):
            notifier.observe(event)
        assert [event.text for event in notifier.take_failures()] == [
            "nobody is notified by json: the variable NOWHERE is not set",
            "nobody is notified by /nonexistent: there is no program /nonexistent",
        ]
    assert [path for path, *_ in endpoint.seen] == ["/topic/done"]
    assert said == []


def test_a_run_that_breaks_off_calls_too_and_hides_secrets(endpoint):
    said: list[Event] = []
    channels = [Channel(url=endpoint.address, details=True)]

    def break_off():
        with open_notifier(channels, {}, lambda text: text.replace(SECRET, "…"), said.append) as notifier:
            notifier.observe(STARTED)
            raise RuntimeError(f"the disk with {SECRET} is full")

    with pytest.raises(RuntimeError):
        break_off()
    [(_, _, data)] = endpoint.seen
    assert json.loads(data)["message"] == "it could not go on · PLAN.md on main · the disk with … is full"


def test_without_apprise_it_is_said_at_the_start_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "apprise", None)
    notifier = Notifier([Channel(url="ntfys://ntfy.sh/x")], {}, str, Sender())
    notifier.observe(STARTED)
    [event] = notifier.take_failures()
    assert event.text.endswith(f"ntfys: Apprise is not installed: {advise_extra('notify')}")
