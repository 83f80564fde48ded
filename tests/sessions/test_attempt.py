"""What an attempt decides, on a runner, a keeper and a commit step of a few lines: no endpoint, no sandbox, no git."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pytest

from relay.base.interrupts import Interrupts, Urgency
from relay.ledger.model import Ledger
from relay.plan.parse import parse_plan
from relay.prompts.texts import PhaseBriefing
from relay.run.attempt.session import Attempt, AttemptKind, AttemptParts, AttemptResult
from relay.run.attempt.start import Handover
from relay.run.commit.candidate import PendingPlan, PhaseCommit, Proposal, Refused
from relay.runners.base import SessionSpec
from relay.session.values import SessionEnd, SessionOutcome, ToolCall, ToolResult
from relay.store.attempts import OpenAttempt
from relay.store.ref_notes import Ending, Notes
from relay.tools import claims
from relay.tools.claims import AttemptNotes
from relay.tools.toolbox import Toolbox
from tests.scripted import Act, ScriptedRunner, make_sessions

PLAN = parse_plan("## Phase 1 — Greetings\n- [ ] Say hello — hello.txt\n- [ ] Say bye — bye.txt\n")
PHASE = PLAN.phases[0]
ONE, TWO = (("tick", {"item": item, "evidence": "seen"}) for item in ("1.1", "1.2"))
HAND_OFF = ("hand_off", {"next_step": "say bye", "learned": [], "dead_ends": []})
BLOCK = ("block", {"reason": "no access"})
BROKEN, WHOLE = (("bash", {"fails": fails}) for fails in (True, False))
SAID = SessionOutcome(end=SessionEnd.FINISHED, text="Commit: no\nDone.\n**Commit: Say hello**\n")
RED = Refused(for_user="grep is red", for_model="the checks do not pass: grep")
HANDLERS = {"tick": claims.run_tick, "hand_off": claims.run_hand_off, "block": claims.run_block}
Advance = Sequence[Act | SessionOutcome]


@dataclass
class World:
    """Everything around an attempt, in memory; a `relay.run.attempt.session.AttemptKeeper`."""

    interrupts: Interrupts
    notes: AttemptNotes = field(default_factory=lambda: AttemptNotes(plan=PLAN, phase=PHASE))
    answers: list[PhaseCommit | Refused] = field(default_factory=list)
    """Of the commit step; when none is left, it commits."""
    at_commit: Urgency = Urgency.NONE
    """What the user asks for while the work is checked."""
    happened: list[str] = field(default_factory=list)
    proposals: list[Proposal] = field(default_factory=list)
    kept: list[tuple[Ending, str, bool]] = field(default_factory=list)
    """How the attempt was left open: its ending, the words of the gate, in a hurry."""
    told: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    """What the user says, one for each time that it is asked."""
    specs: list[SessionSpec] = field(default_factory=list)

    def play(self, *advances: Advance, **settings: object) -> AttemptResult:
        """Run an attempt whose session does this."""
        runner = ScriptedRunner([list(advances)], told=self.told, specs=self.specs)
        tools = Toolbox(specs=(), run=self.run_tool, stop=lambda: self.happened.append("stop"))
        parts = AttemptParts(system="", notes=self.notes, toolbox=tools, keeper=self, commit=self.commit)
        return Attempt(make_handover(), parts, make_sessions(runner, [], **settings), self.interrupts).run()

    def run_tool(self, call: ToolCall) -> ToolResult:
        """Note what is claimed; a command fails as it is told to."""
        if handle := HANDLERS.get(call.name):
            answer = handle(self.notes, call.input)
            return ToolResult(text=answer.text, ends_session=answer.ends_session)
        return ToolResult(text="exit 3", is_error=call.input["fails"])

    def commit(self, proposal: Proposal) -> PhaseCommit | Refused:
        """Answer as the test wants it."""
        self.happened.append("commit")
        self.proposals.append(proposal)
        self.interrupts.request(self.at_commit)
        return self.answers.pop(0) if self.answers else PhaseCommit(commit="c0ffee")

    def show_plan(self) -> None:
        """Remember it."""
        self.happened.append("show")

    def take_call(self, call: ToolCall, result: ToolResult) -> ToolResult:
        """Remember it."""
        self.happened.append(call.name)
        return result

    def hear(self) -> str:
        """Return what the user says next."""
        return self.said.pop(0) if self.said else ""

    def note_repair(self, number: int) -> None:
        """Remember it."""
        self.happened.append(f"repair {number}")

    def note_wait(self, until: float) -> None:
        """Remember it."""
        self.happened.append(f"wait until {until}")

    def save_end(self, ending: Ending, gate_words: str, *, hurried: bool) -> None:
        """Remember it."""
        self.kept.append((ending, gate_words, hurried))


def make_handover() -> Handover:
    """What the first session of the phase starts from."""
    attempt = OpenAttempt(
        branch="main", commit="c", base_tree="t",
        begun=Notes(base="h", session="0badcafe", phase="1", plan="PLAN.md"),
    )  # fmt: skip
    briefing = PhaseBriefing(
        plan=PLAN, phase=PHASE, plan_path="PLAN.md", environment=(), claimed=(), handoff_note="", interruption="",
        baseline="", ledger="",
    )  # fmt: skip
    return Handover(
        seen={},
        attempt=attempt, phase_id="1", number=1, no_progress=0, tries=1, reason="", commands=(), baseline=None,
        briefing=briefing,
        pending=PendingPlan(head=PLAN, plan=PLAN, ledger=Ledger()),
    )  # fmt: skip


@pytest.fixture
def world() -> Iterator[World]:
    interrupts = Interrupts()
    yield World(interrupts)
    interrupts.close()


def asks(world: World, urgency: Urgency) -> Advance:
    """The user asks for a stop, and the session ends by it."""
    return [lambda: world.interrupts.request(urgency), SessionOutcome(end=SessionEnd.INTERRUPTED, detail="stopped")]


def test_what_is_all_claimed_and_passes_is_done(world):
    ended = world.play([ONE, TWO, SAID])

    assert (ended.kind, ended.detail, ended.new_claims) == (AttemptKind.DONE, "phase 1 is done", 2)
    assert world.proposals == [Proposal(subject="Say hello", status="done", gate_words="")]
    assert world.happened == ["show", "tick", "tick", "stop", "commit"]  # nothing runs while the work is checked
    assert len(world.told) == 1
    assert world.kept == []


SUBJECTS = {
    "Commit: Add `greet`": "Add `greet`",
    "`Commit: Add greet`": "Add greet",
    "Commit: `Add greet`": "Add greet",
    "**Commit:** Add greet_all": "Add greet_all",
    "__Commit: Add `greet`__": "Add `greet`",
    "Commit: **": "",
}


def test_a_subject_keeps_what_is_marked_in_it(world):
    """Only what is around the whole line is no part of it."""
    for line in SUBJECTS:
        world.play([ONE, TWO, SessionOutcome(end=SessionEnd.FINISHED, text=line)])
    assert [proposal.subject for proposal in world.proposals] == [*SUBJECTS.values()]


def test_what_tools_of_an_agents_own_changed_is_kept_at_its_boundaries(world):
    """Between two of its requests, under the agent's name: relay does not see its calls."""

    def act():
        world.specs[0].callbacks.note_boundary()

    world.play([act, ONE, TWO, SAID])

    assert world.happened == ["show", "agent", "tick", "tick", "stop", "commit"]


@pytest.mark.parametrize(
    ("settings", "told"), [({}, True), ({"ablate": ("consolidate",)}, False), ({"context": "none"}, False)]
)
def test_in_the_consolidate_band_a_session_with_open_items_is_told(world, settings, told):
    """Not one that has ticked everything, nor in a run that compares strategies or does without."""
    said = []

    def ask():
        said.append(world.specs[0].callbacks.render_band_notice(65_000, 100_000))

    world.play([ask, ONE, TWO, ask, SAID], **settings)

    assert ["65,000 of the 100,000 tokens" in words for words in said] == [told, False]


def test_what_the_user_says_goes_into_the_first_message_and_holds_the_commit_up(world):
    """What came while the session said its last words is not for the next one."""
    world.said = ["be brief", "and kind", ""]

    ended = world.play([ONE, TWO, SAID], [SAID])

    assert ended.kind is AttemptKind.DONE
    assert world.told[0].endswith("Carry out phase 1 now.\n\nbe brief")
    assert world.told[1] == "and kind"
    assert world.happened.count("commit") == 1


def test_a_session_that_forgot_an_item_is_reminded_of_it(world):
    ended = world.play([ONE], [TWO])

    assert ended.kind is AttemptKind.DONE
    assert "not ticked: 1.2." in world.told[1]
    assert [proposal.subject for proposal in world.proposals] == [""]


@pytest.mark.parametrize(("first", "again"), [([], False), ([ONE], True)])
def test_a_session_is_reminded_once(world, first, again):
    """Words are no completion; who ticked something got somewhere."""
    ended = world.play(first, [], [TWO])

    assert (ended.kind, ended.can_go_on) == (AttemptKind.FAILED, again)
    assert "but 1.2 is not ticked" in ended.detail or "1.1, 1.2 are not ticked" in ended.detail
    assert (len(world.told), world.proposals, len(world.kept)) == (2, [], 1)


@pytest.mark.parametrize("allowed", [0, 1, 2])
def test_repairs_are_used_up(world, allowed):
    """What the gate said is in the handoff note, and what the phase is stuck at in its ending."""
    world.answers = [RED] * 9

    ended = world.play([ONE, TWO], max_repairs=allowed)

    assert (ended.kind, ended.detail, ended.can_go_on) == (AttemptKind.FAILED, RED.for_user, False)
    assert len(world.told) == len(world.proposals) == 1 + allowed
    assert all(f"(try {n} of {allowed})" in words for n, words in enumerate(world.told) if n)
    ((ending, gate_words, hurried),) = world.kept
    assert (ending.error, gate_words, hurried) == ("all ticked: gate: grep is red", RED.for_user, False)
    if allowed:
        world.answers = [RED]
        assert world.play([ONE, TWO], [WHOLE]).kind is AttemptKind.DONE
        assert RED.for_model in world.told[-1]
        assert [one.gate_words for one in world.proposals[-2:]] == ["", RED.for_user]
        assert len(world.kept) == 1


@pytest.mark.parametrize("last", [SAID, HAND_OFF], ids=["it ended its turn", "it handed over"])
def test_finished_work_waits_for_its_review(world, last):
    """What it proposed is kept with its subject; that is no error, and no session is asked to repair it."""
    world.answers = [Refused(for_user="its review comes first", for_review=True)]

    ended = world.play([ONE, TWO, last])

    assert (ended.kind, ended.detail, len(world.told)) == (AttemptKind.REVIEW, "its review comes first", 1)
    ((ending, gate_words, _),) = world.kept
    assert (ending.proposed, ending.error, gate_words) == ("Say hello" if last is SAID else "", "", "")


def test_no_repair_is_asked_for_where_no_session_can_do_it_or_the_user_wants_to_stop(world):
    world.answers = [Refused(for_user="the branch moved")]
    assert world.play([ONE, TWO], max_repairs=5).detail == "the branch moved"
    world.answers, world.at_commit = [RED], Urgency.FINISH_TURN
    assert world.play([ONE, TWO], max_repairs=5).kind is AttemptKind.INTERRUPTED
    assert (len(world.told), len(world.kept)) == (2, 2)


HARD = SessionOutcome(end=SessionEnd.HARD_LINE)
ENDS: list[
    tuple[Advance, list[Refused], AttemptKind, list[str], list[str]]
] = [  # what a session does, what the commit step says, and the end, what is committed and the error that is kept
    ([HAND_OFF], [], AttemptKind.HANDOFF, [], [""]),
    ([ONE, HAND_OFF], [], AttemptKind.HANDOFF, ["handoff"], []),
    ([ONE, HAND_OFF], [RED], AttemptKind.HANDOFF, ["handoff"], [""]),  # told to the next session, and no error
    ([ONE, TWO, HAND_OFF], [], AttemptKind.DONE, ["done"], []),
    ([ONE, BLOCK], [], AttemptKind.BLOCKED, [], [""]),
    ([ONE, HARD], [], AttemptKind.HANDOFF, ["handoff"], []),
    ([ONE, TWO, HARD], [], AttemptKind.DONE, ["done"], []),
]


def test_a_hand_off_and_the_hard_line_commit_what_is_claimed_and_passes_and_keep_the_rest():
    wrong = []
    for acts, answers, kind, committed, errors in ENDS:
        interrupts = Interrupts()
        world = World(interrupts, answers=[*answers])
        ended = world.play(acts)
        interrupts.close()
        read = ended.kind, [one.status for one in world.proposals], [kept[0].error for kept in world.kept]
        wrong += [(acts, read)] if read != (kind, committed, errors) else []
    assert wrong == []


@pytest.mark.parametrize("end", sorted({*SessionEnd} - {SessionEnd.FINISHED, SessionEnd.ENDED_BY_TOOL}))
def test_a_session_that_was_ended_leaves_its_work(world, end):
    """Over the line another can go on; a stop is the user's; everything else has failed."""
    ended = world.play([SessionOutcome(end=end, detail="the reason")])

    kinds = {SessionEnd.HARD_LINE: AttemptKind.HANDOFF, SessionEnd.OVERFLOW: AttemptKind.HANDOFF}
    expected = kinds.get(end, AttemptKind.INTERRUPTED if end is SessionEnd.INTERRUPTED else AttemptKind.FAILED)
    assert (ended.kind, ended.end, ended.detail) == (expected, end, "the reason")
    assert world.happened == ["show", "stop"]
    ((ending, _, hurried),) = world.kept
    assert (ending.end, hurried) == (end, False)


@pytest.mark.parametrize(("claimed", "kind"), [([ONE], AttemptKind.INTERRUPTED), ([ONE, TWO], AttemptKind.DONE)])
def test_a_stop_lets_what_is_claimed_be_committed(world, claimed, kind):
    assert world.play([*claimed, *asks(world, Urgency.FINISH_TURN)]).kind is kind
    assert (len(world.proposals), world.kept) == (1, [])


def test_a_stop_now_commits_nothing(world):
    """There is no time for the gate, nor for looking at the whole tree."""
    ended = world.play([ONE, TWO, *asks(world, Urgency.NOW)])

    assert (ended.kind, ended.detail) == (AttemptKind.INTERRUPTED, "stopped")
    assert world.proposals == []
    assert [hurried for _, _, hurried in world.kept] == [True]


@pytest.mark.parametrize(
    ("acts", "error"),
    [([BROKEN], "1.1: bash: exit 3"), ([BROKEN, WHOLE], ""), ([ONE, BROKEN, TWO, BLOCK], "all ticked: bash: exit 3")],
)
def test_the_error_that_a_session_did_not_overcome_is_kept(world, acts, error):
    world.play([*acts, SessionOutcome(end=SessionEnd.STUCK)])

    assert world.kept[0][0].error == error


def test_until_when_a_limit_lasts_is_kept_before_the_wait_and_behind_the_end(world):
    world.play([SessionOutcome(end=SessionEnd.LIMIT, retry_at=86_400.0)])

    assert world.kept[0][0].wait_until == 86_400

    world.specs[0].callbacks.note_wait(86_400.0)
    assert world.happened[-1] == "wait until 86400.0"
