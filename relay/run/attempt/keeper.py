"""Saves a session's work in git: checkpoints, the pending plan and ledger, and the plan as it was.

A checkpoint follows each tool call that changed something, so a crash loses at most the work of the running tool.
`relay.run.attempt.session` drives the session.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from relay.base.redaction import redact
from relay.base.tree import read_file, replace_file
from relay.base.words import list_some
from relay.git.lock_journal import hold_collections
from relay.git.trees import FILE
from relay.ledger.belief import ClaimStatus, Judgement, find_beside, judge
from relay.ledger.model import (
    Claim,
    Entry,
    Ledger,
    Nogood,
    Record,
    Stamp,
    append_entry,
    make_entries,
    render_stamp_time,
)
from relay.ledger.snapshot import clip, describe_belief, describe_nogood, list_work
from relay.prompts.texts import render_handoff_note, render_outdated, render_text
from relay.run.attempt.start import Handover, render_plan
from relay.run.commit.candidate import PendingPlan
from relay.run.commit.readiness import settle_in
from relay.session.events import Noticed, PlanRestored, WordsHeard
from relay.session.values import HandoffNote, ToolCall, ToolResult
from relay.setup.context import PlanFiles, RunContext
from relay.store.attempts import find_owned_paths, note_wait
from relay.store.checkpoints import WipRecord, save_snapshots, save_wip
from relay.store.outdated import Outdated, find_outdated, is_amended
from relay.store.ref_notes import Carried, Ending
from relay.store.snapshot import write_snapshot_tree
from relay.store.staleness import cite_sources, find_changed_sources
from relay.store.trailers import EVIDENCE_CHARS
from relay.store.worktree_notes import drop_words, read_words
from relay.tools.claims import AttemptNotes, Findings

MAX_TOLD = 5
"""Most claims of one message; for more, the message says that the file is cited as a whole."""
MAX_BESIDE = 3
"""Most claims about the same place that are shown with a new claim."""


class ClaimWatch:
    """Adds a session's records to the ledger, and tells how records and edits affect other claims.

    Mutable: it remembers its messages.

    Args:
        notes: Their ledger grows.
    """

    def __init__(self, files: PlanFiles, notes: AttemptNotes | Findings, stamp: Stamp) -> None:
        self._repo = files.repo
        self._own = (files.plan_path, files.ledger_path)
        self._notes = notes
        self._stamp = stamp
        self._recorded = 0
        self._notices: list[Noticed] = []
        self._unsettled: set[str] = set()
        # The first message has listed claims that were stale before the session.
        self._changed = find_changed_sources(files.repo, notes.ledger.sources)

    def take_records(self) -> str:
        """Add new findings to the ledger, each with the current content of its sources.

        Returns:
            Their ids, their effect on other claims, and claims beside them; empty without findings.
        """
        words = [self._take(record) for record in self._notes.records[self._recorded :]]
        self._recorded = len(self._notes.records)
        return "\n".join(words)

    def take_notices(self) -> list[Noticed]:
        """Return what the user should know of the records since the last call."""
        notices, self._notices = self._notices, []
        return notices

    def keep_found(self, records: Sequence[Record]) -> tuple[Claim, ...]:
        """Add an explorer's findings to the ledger; return the claim of each."""
        before, notices = self._notes.ledger.claims, len(self._notices)
        self._notes.records.extend(records)
        self.take_records()
        del self._notices[notices:]  # an explorer has ended: nobody is asked what stands beside
        return tuple(claim for name, claim in self._notes.ledger.claims.items() if name not in before)

    def find_doubts(self, paths: Iterable[str] | None) -> str:
        """Return a message about claims that the session's edits put in doubt since the last call, each claim once.

        Args:
            paths: Paths that may have changed; None for any.
        """
        ledger, known = self._notes.ledger, None if paths is None else set(paths)
        cited = [s for s in ledger.sources if s not in self._changed and (known is None or s.path in known)]
        changed = find_changed_sources(self._repo, cited)
        if not changed:
            return ""
        self._changed |= changed
        lines = _list_changes(ledger, judge(ledger, {}), judge(ledger, changed))
        return f"relay: this changed what claims rest on. {_RECORD_DOUBTED}\n{lines}" if lines else ""

    def find_unsettled(self) -> str:
        """Return a message about the contradictions that are open, each once."""
        known = judge(self._notes.ledger, {}).contradictions
        new = [nogood for nogood in known if nogood.id not in self._unsettled]
        self._unsettled.update(nogood.id for nogood in new)
        words, lines = list_work([one.id for one in new], ()), [f"- {describe_nogood(one)}" for one in new]
        return "".join(f"relay: a contradiction is open; {todo}.\n" for todo in words) + _list_told(lines)

    def _take(self, record: Record) -> str:
        ledger = self._notes.ledger
        before, entries = judge(ledger, self._changed), self._make_entries(record)
        self._notes.ledger = append_entry(ledger, *entries)
        self._notices += [Noticed(text=describe_nogood(e), warning=True) for e in entries if isinstance(e, Nogood)]
        after = judge(self._notes.ledger, self._changed)
        claim = next((entry for entry in entries if isinstance(entry, Claim)), None)
        words = f"Recorded as {claim.id}." if claim else f"Confirmed: {', '.join(record.confirms)}."
        if record.contradicts:
            pairs = [f"{entry.id} ({', '.join(entry.claims)})" for entry in entries if isinstance(entry, Nogood)]
            words = f"{words if claim else 'Recorded.'} They cannot hold together: {', '.join(pairs)}."
        if changes := _list_changes(self._notes.ledger, before, after, left_out=claim.replaces if claim else ()):
            words += f" Now:\n{changes}"
        if claim is None or claim.replaces != record.replaces:  # said again, with what it was asked for
            return words
        beside = [other for other in find_beside(ledger, before, claim) if other.id not in record.contradicts]
        if not beside:
            return words
        lines = "\n".join(f"- {other.id} {other.kind}: {clip(other.claim, 300)}" for other in beside[:MAX_BESIDE])
        near = ", ".join(other.id for other in beside[:MAX_BESIDE])
        self._notices.append(Noticed(text=f"claim {claim.id} stands beside {near}; the session is asked how"))
        joint = "\n" if changes else " "
        return f"{words}{joint}Beside {near}: {_ASKED} and {claim.id} in `replaces`.\n{lines}"

    def _make_entries(self, record: Record) -> tuple[Entry, ...]:
        """Return the entries of a record. A claim that the session repeats takes the place of the one before."""
        ledger, session = self._notes.ledger, self._stamp.session
        same = [one.id for one in ledger.claims.values() if (one.claim, one.stamp.session) == (record.claim, session)]
        rests_on = tuple(name for name in record.rests_on if name not in same)
        replaces = (*record.replaces, *(name for name in same[-1:] if name not in record.replaces))
        sources = cite_sources(self._repo, record.sources, self._own)
        stamp = replace(self._stamp, at=render_stamp_time(datetime.now(UTC)))
        return make_entries(ledger, replace(record, rests_on=rests_on, replaces=replaces, sources=sources), stamp)


_ASKED = "does it rest on it, replace it or contradict it? If so, `record` it again with that id,"
_RECORD_DOUBTED = "Before you tick, `record` what replaces them, or look and confirm:"


def _list_changes(ledger: Ledger, before: Judgement, after: Judgement, *, left_out: Collection[str] = ()) -> str:
    """Write the claims that hold less than before, or are new and do not hold, one a line."""
    lines = [
        f"- {describe_belief(claim, after[name])}"
        for name, claim in ledger.claims.items()
        if after[name].status is not ClaimStatus.IN
        and (name not in before.beliefs or after[name].status is not before[name].status)
        and name not in left_out
    ]
    return _list_told(lines)


def _list_told(lines: Sequence[str]) -> str:
    return list_some(lines, MAX_TOLD, joint="\n")


_NOTED = frozenset({"tick", "amend", "record", "hand_off", "defer", "explore"})
"""Tools that change the pending plan, so that a checkpoint follows."""
_TELLING = frozenset({"tick", "bash"})
"""Tools whose answer names later items that the phase made wrong: files after a command, all with a tick."""


_NOTHING, _WORKING = Carried(), Ending()


class Keeper:
    """Saves the work of one session; a `relay.run.attempt.session.AttemptKeeper`.

    Args:
        notes: The notes of the session's tools; read after each call.
        is_busy: Whether a tool server runs, which may change files between calls.
    """

    def __init__(
        self, ctx: RunContext, handover: Handover, notes: AttemptNotes, *, is_busy: Callable[[], bool]
    ) -> None:
        self.attempt = handover.attempt
        """The open attempt, with its newest snapshot."""
        self._ctx = ctx
        self._notes = notes
        self._is_busy = is_busy
        self._begun = handover.pending
        stamp = Stamp(phase=handover.phase_id, session=handover.attempt.session_id)
        self._claims = ClaimWatch(ctx.files, notes, stamp)
        self._outdated: set[Outdated] = set()
        self._asked = 0
        self._on_disk = self._read_own()

    @property
    def pending(self) -> PendingPlan:
        """The plan and ledger of the session's start, with its notes; amendments are in the notes' plan already."""
        return replace(self._begun, plan=self._notes.plan.tick(self._notes.claims), ledger=self._notes.ledger)

    def take_call(self, call: ToolCall, result: ToolResult) -> ToolResult:
        """Save the changes and notes of a call; return its result, with messages about restored files and doubts."""
        if result.changed_paths is None:
            result = self._put_plan_back(call, result)
        recorded, doubted = self._claims.take_records(), self._find_doubts(call, result)
        unsettled = self._claims.find_unsettled() if call.name == "tick" else ""
        for notice in self._claims.take_notices():
            self._ctx.observe(notice)
        # Last: the checkpoint holds the ledger with the new records, and the restored plan.
        self._store(call, result)
        outdated = self._find_outdated(files=call.name == "bash") if call.name in _TELLING else ""
        for asked in self._notes.questions[self._asked :]:
            self._ctx.observe(asked)
        self._asked = len(self._notes.questions)
        told = "\n\n".join(filter(None, (doubted, unsettled, outdated)))
        text = "\n\n".join(filter(None, (recorded or result.text, told)))
        return replace(result, text=text, ends_turn=result.ends_turn and not told)  # the session has to answer

    def keep_findings(self, records: Sequence[Record]) -> tuple[Claim, ...]:
        """Add what an explorer of the session found to the ledger; return the claim of each."""
        return self._claims.keep_found(records)

    def _find_doubts(self, call: ToolCall, result: ToolResult) -> str:
        """Return a message about claims that a call, or a tool server between calls, put in doubt."""
        paths = result.changed_paths
        return self._claims.find_doubts(None if self._is_busy() or call.name == "tick" else paths)

    def _find_outdated(self, *, files: bool) -> str:
        """Return a message about later items that the phase made wrong, each name once."""
        begun, plan, attempt = self._begun.head, self._notes.plan, self.attempt
        settled = settle_in(self._ctx.repo, self._ctx.plan_path, plan, attempt.base_head)
        later = [phase for phase in settled.phases if phase.id != attempt.phase_id]
        told = [one.name for one in self._outdated]
        tree = attempt.last_wip.tree if attempt.last_wip else attempt.base_tree
        found = find_outdated(self._ctx.repo, attempt.base_tree, tree, later, without=told, files=files)
        new = [one for one in found if one not in self._outdated and not is_amended(one, begun, plan)]
        self._outdated.update(new)
        return render_outdated([one.words for one in new])

    def save(
        self,
        *,
        handoff_note: str = "",
        carried: Carried = _NOTHING,
        ending: Ending = _WORKING,
    ) -> None:
        """Take a checkpoint with claims, pending plan and spend.

        Args:
            handoff_note: For the next session; empty while this one goes on.
            carried: What all further checkpoints keep, too.
            ending: How the session ends.
        """
        record = replace(self._make_record(), handoff_note=handoff_note, ending=ending)
        self.attempt = save_wip(self._ctx.repo, self.attempt, replace(record, carried=record.carried.join(carried)))

    def _make_record(self) -> WipRecord:
        pending = self.pending
        return WipRecord(
            spend=self._ctx.meter.unrecorded,
            items=pending.claimed_ids,
            replace=pending.render_files(self._ctx.plan_path, self._ctx.ledger_path),
            carried=Carried(evidence=self._list_evidence()),
        )

    def _list_evidence(self) -> dict[str, str]:
        """Return the evidence of claims by the items' texts: the commit may come from another session."""
        texts, values = {item.id: item.text for item in self._notes.phase.items}, self._ctx.secret_values
        clean = ((item, redact(words, environ_values=values)) for item, words in self._notes.claims.items())
        return {texts.get(item, ""): words[:EVIDENCE_CHARS] for item, words in clean}

    def _read_own(self) -> dict[str, bytes | None]:
        paths = (self._ctx.plan_path, self._ctx.ledger_path)
        return {path: read_file(self._ctx.repo.root, path) for path in paths}

    def save_end(self, ending: Ending, gate_words: str, *, hurried: bool) -> None:
        """Leave the work in the tree and save it with a handoff note; the attempt stays open for the next session."""
        handoff_note = "" if hurried else self.render_handoff_note(gate_words)
        self.save(handoff_note=handoff_note, ending=ending)

    def hear(self) -> str:
        """Save and return the user's new words, empty without any; obey the user's new cap."""
        self._ctx.hear_cap()
        repo = self._ctx.repo
        found = read_words(repo, self.attempt.phase_id)
        if not found:
            return ""
        texts = tuple(redact(said.text, environ_values=self._ctx.secret_values) for said in found)
        new = tuple(
            text for text in texts if text not in self.attempt.carried.said
        )  # a killed relay may have saved some already
        self.save(handoff_note=self.attempt.handoff_note, carried=Carried(said=new))
        drop_words(repo, tuple(said.name for said in found))
        for text in texts:
            self._ctx.observe(WordsHeard(text=text))
        return render_text("said", text="\n\n".join(texts))

    def note_repair(self, number: int) -> None:
        """Save that the commit step gives the work back to the session, for the nth time."""
        repairs = Carried(repairs={self.attempt.session_id: number})
        self.save(handoff_note=self.attempt.handoff_note, carried=repairs)

    def note_wait(self, until: float) -> None:
        """Save the end of a limit before waiting for it."""
        self.save(ending=Ending(**note_wait(until, self._ctx.settings.model)))

    def show_plan(self, *, committed: bool = False) -> None:
        """Show the plan with its claims; with `committed` they are done."""
        pending = self.pending
        self._ctx.observe(
            render_plan(self._ctx.files, pending.plan, committed=pending.plan if committed else pending.head)
        )

    def render_handoff_note(self, gate_words: str) -> str:
        """Return the handoff note for the next session; `gate_words`: the commit step's last refusal, or empty."""
        now = write_snapshot_tree(self._ctx.repo)
        notes = self._notes
        asked = notes.hand_off
        session = self.attempt.session_id
        recorded = tuple(name for name, claim in notes.ledger.claims.items() if claim.stamp.session == session)
        last_errors = tuple(f"{name}: {' '.join(text.split())[:200]}" for name, text in notes.last_errors.items())
        text = render_handoff_note(
            HandoffNote(
                done=tuple(f"{item}: {notes.claims.get(item, 'ticked earlier')}" for item in self.pending.claimed_ids),
                open=notes.open_ids(),
                next_step=asked.next_step if asked else "",
                learned=asked.learned if asked else (),
                recorded=recorded,
                dead_ends=asked.dead_ends if asked else last_errors,
                files=find_owned_paths(self._ctx.repo, self._ctx.plan_path, self.attempt, now)[:50],
                gate=gate_words,
                author="model" if asked else "relay",
            )
        )
        return redact(text, environ_values=self._ctx.secret_values)

    def _store(self, call: ToolCall, result: ToolResult) -> None:
        """Take a checkpoint if a call changed something; `relay.store.attempts` notes the cost of other calls."""
        paths = result.changed_paths
        noted = call.name in _NOTED and not result.is_error
        if noted:
            self.show_plan()
        if noted or paths is None or paths:
            self.save()

    def _put_plan_back(self, call: ToolCall, result: ToolResult) -> ToolResult:
        """Restore the plan after an unconfined command changed it; with a sandbox only the user can have changed it."""
        if self._ctx.workspace.sandbox.mechanism.confines:
            return result
        root = self._ctx.repo.root
        changed = [path for path, data in self._read_own().items() if self._on_disk[path] != data]
        if not changed:
            return result
        where = self._keep_own()
        for path in changed:
            restore = self._on_disk[path]
            if restore is None:
                (root / path).unlink(missing_ok=True)
            else:
                replace_file(root, path, restore, FILE)
        names = ", ".join(changed)
        words = f"{names} was changed and put back; the changed version: git show {where}:<file>"
        self._ctx.observe(PlanRestored(tool=call.name, summary=words))
        words = f"\n\nrelay: this changed {names}, which only relay writes; it was put back. Use tick, record or amend."
        return ToolResult(text=result.text + words, is_error=True, changed_paths=None)

    def _keep_own(self) -> str:
        """Save plan and ledger as they are on disk, which other checkpoints do not hold; return the commit."""
        repo, record = self._ctx.repo, self._make_record()
        with hold_collections(repo):
            found = write_snapshot_tree(repo)
            drafted = write_snapshot_tree(repo, replace=record.replace)
            self.attempt = save_snapshots(repo, self.attempt, record, found, drafted)
        return f"{self.attempt.last_wip.commit[:12]}~1" if self.attempt.last_wip else ""
