"""Calling over real HTTP and with real programs: tried again, given up, and never in the way."""

import json
import os
import resource
import socket
import sys
import warnings

import pytest
from requests.adapters import HTTPAdapter

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
    open_notifier,
    render_news,
)
from relay.session.events import Event, RunEnded, RunStarted
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


def make_notifier(*channels):
    return Notifier(channels, {}, str, waits_s=AT_ONCE)


def deliver(job):
    notifier = make_notifier()
    notifier.send("news", job)
    notifier.close(30.0)
    return notifier.take_ends()


def post(url, environ=None, **given):
    return render_news(Channel(url=url, **given), NEWS, environ or {})


def reached(words="it was taken"):
    return (CallEnd(name="news", reached=True, words=words),)


def lost(words):
    return (CallEnd(name="news", reached=False, words=words),)


@pytest.fixture
def tell(monkeypatch, capsys):
    """Tell a service in this process: Apprise is imported once. Return whether it took it, and what was said."""
    monkeypatch.setattr(call, "MEMORY_BYTES", resource.RLIM_INFINITY)  # the tests' own process keeps its memory
    monkeypatch.setattr("requests.sessions.HTTPAdapter", HTTPAdapter)
    warnings.simplefilter("ignore", DeprecationWarning)  # of Apprise's plugins; pytest puts the filters back

    def run(job, waits_s=AT_ONCE):
        return call.tell_service(**job, waits_s=waits_s), capsys.readouterr().out.splitlines()

    return run


def test_a_service_is_told_by_a_name_that_none_refuses(endpoint, tell):
    """Python's own name in the User-Agent is refused by Discord's edge; whole channels are called by no text."""
    url = endpoint.address.replace("topic", "${TOPIC}?+Authorization=Bearer%20${TOKEN}")
    job = post(url, {"TOPIC": "mine", "TOKEN": SECRET}, details=True)
    assert deliver(job) == reached()
    [(path, sent, data)] = endpoint.seen
    assert (path, sent["Authorization"], sent["User-Agent"]) == ("/mine", f"Bearer {SECRET}", "relay")
    body = json.loads(data)
    assert (body["title"], body["type"]) == ("relay: it needs you", "failure")
    assert body["message"] == "exit status 1, $0.42 spent · PLAN.md on main · ‹!channel› & \uff20everyone"
    assert tell(post(endpoint.address.replace("json", "ntfy"))) == (True, ["it was taken"])
    message = json.loads(endpoint.seen[1][2])["message"]
    assert message == "exit status 1, $0.42 spent", "nothing of the repository unless asked"


def test_what_fails_is_tried_again_or_given_up(endpoint, tell):
    for answers, tries, (took, words) in (
        ([500, "later", 204], 3, (True, "it was taken")),
        (["drop", "nonsense", 200], 3, (True, "it was taken")),
        ([503], 4, (False, "answered with 503")),
        ([302], 1, (False, "it was not taken")),
    ):
        endpoint.answers, endpoint.seen = answers.copy(), []
        waits = (0.0, 60.0) if "later" in answers else AT_ONCE  # it says itself that a second is enough
        done, said = tell(post(f"{endpoint.address}/{SECRET}"), waits)
        assert (done, said[-1]) == (took, words), answers
        assert [path for path, *_ in endpoint.seen] == [f"/topic/{SECRET}"] * tries, answers


def test_an_answer_without_end_ends_at_the_memory_of_its_own_process(endpoint, monkeypatch):
    lower = f"call.MEMORY_BYTES = {200 << 20}; sys.exit(call.main())"
    start = "import sys; sys.path.insert(0, sys.argv[1]); from relay.news import call; "
    monkeypatch.setattr(notifiers, "_CALL", start + lower)
    endpoint.answers = ["endless"]
    assert deliver(post(endpoint.address)) == lost("it was not taken")


def test_who_cannot_be_told_is_said_without_the_address(tell):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        nobody = post(f"json://user:{SECRET}@127.0.0.1:{free.getsockname()[1]}/{SECRET}")
        assert tell(nobody) == (False, ["no answer: [Errno 111] Connection refused"] * 4)
    words = "Apprise knows no service of this address, or needs another package for it"
    assert tell(post(f"nosuch://{SECRET}")) == (False, [words])


def test_the_end_waits_for_the_last_message_and_for_nobody_else(tmp_path, monkeypatch):
    """All are on their way side by side: one that does not answer keeps none from its three further tries."""
    assert sum(WAITS_S) < LAST_S
    monkeypatch.setattr(notifiers, "MOST_CALLS", 2)
    fourth = f"echo >> {tmp_path}/tries; test $(wc -l < {tmp_path}/tries) = 4"
    notifier = make_notifier()
    for name, words in (("silent", ["sleep", "600"]), ("last", ["sh", "-c", fourth]), ("more", ["true"])):
        notifier.send(name, {"words": words})
    found: list[CallEnd] = []

    def has_last():
        found.extend(notifier.take_ends())
        return any(one.name == "last" for one in found)

    wait_until(has_last)
    notifier.close(0)
    assert [*found, *notifier.take_ends()] == [
        CallEnd(name="more", reached=False, words="too much to tell at once"),
        CallEnd(name="last", reached=True, words="sh ended with 0"),
        CallEnd(name="silent", reached=False, words="given up at the end of the run"),
    ]


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
    notifier = make_notifier()
    notifier.send("program", job)
    wait_until(lambda: (tmp_path / "pid").exists() and len((tmp_path / "pid").read_text().split()) == 2)
    caller, pid = (tmp_path / "pid").read_text().split()
    wait_until(lambda: waits(caller))
    notifier.close(0)
    assert [end.words for end in notifier.take_ends()] == ["given up at the end of the run"]
    wait_until(lambda: not is_alive(pid))
    desktop = render_news(Channel(form="desktop"), NEWS, {})
    assert desktop["words"][-2:] == ["relay: it needs you", NEWS.text]


def test_a_program_that_hangs_is_given_up(monkeypatch, capsys):
    monkeypatch.setattr(call, "PROGRAM_S", 0.05)
    assert not call.start_program(words=["sleep", "60"], waits_s=AT_ONCE)
    assert capsys.readouterr().out == "sleep did not end in 0.05 s\n"


def note(path, on, **given):
    """Return a channel whose program adds what it is told to a file."""
    words = ("sh", "-c", f'printf "%s\\n" "$0" >> {path}', "{text}")
    return Channel(command=words, on=on, **given)


def test_a_run_calls_those_who_want_to_know(endpoint, tmp_path):
    said: list[Event] = []
    channels = [note(tmp_path / on, (on,)) for on in ("done", "red")]
    channels.append(Channel(url=f"{endpoint.address}/${{NOWHERE}}", on=("done",)))
    channels.append(Channel(command=("/nonexistent", "{title}"), on=("done",)))
    with open_notifier(channels, os.environ, str, said.append) as notifier:
        notifier.observe(STARTED)
        assert [event.text for event in notifier.take_failures()] == [
            "nobody is notified by json: the variable NOWHERE is not set",
            "nobody is notified by /nonexistent: there is no program /nonexistent",
        ]
        notifier.observe(ENDED)
        assert notifier.take_failures() == ()  # it was said
    assert [path.name for path in tmp_path.iterdir()] == ["done"]
    assert endpoint.seen == said == []


def test_a_run_that_breaks_off_calls_too_and_hides_secrets(tmp_path):
    """Once it has said its end, that stands."""
    channels = [note(tmp_path / "said", ("stopped",), details=True)]

    def break_off(*observed):
        with open_notifier(channels, {}, lambda text: text.replace(SECRET, "…"), lambda _: None) as notifier:
            for event in observed:
                notifier.observe(event)
            raise RuntimeError(f"the disk with {SECRET} is full")

    for observed in ((STARTED,), (STARTED, ENDED)):
        with pytest.raises(RuntimeError):
            break_off(*observed)
    assert (tmp_path / "said").read_text() == "it could not go on · PLAN.md on main · the disk with … is full\n"


def test_without_apprise_it_is_said_at_the_start_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "apprise", None)
    notifier = make_notifier(Channel(url="ntfys://ntfy.sh/x"))
    notifier.observe(STARTED)
    [event] = notifier.take_failures()
    assert event.text.endswith(f"ntfys: Apprise is not installed: {advise_extra('notify')}")
