"""Keeping in git what a session does, where no crash can take it: snapshots, the pending plan, the plan as it was.

After every tool that may have changed something a snapshot is stored, so that a crash loses at most what the running
tool was doing. The session is driven elsewhere (`relay.run.leg`).
"""

from collections.abc import Callable
from dataclasses import replace

from relay.files.tree import read_file, replace_file
from relay.git.modes import FILE
from relay.git.objects import find_blob_id
from relay.prompts.texts import render_baton
from relay.run.pending_plan import PendingPlan
from relay.run.plan_view import render_plan
from relay.run.start import Handover
from relay.sandbox.policy import Mechanism
from relay.secrets.patterns import redact
from relay.session.events import PlanRestored
from relay.session.values import Baton, ToolCall, ToolResult
from relay.setup.context import RunContext
from relay.state.session_ends import render_wait
from relay.store.legs import WipRecord, save_wip
from relay.store.ownership import find_owned_paths
from relay.store.snapshot import write_snapshot_tree
from relay.tools.notes import LegNotes

MAX_UNSAVED_CALLS = 10
"""Calls in a row that only look, before what they have cost is stored all the same."""
_NOTED = frozenset({"tick", "amend", "record", "hand_off"})
"""Tools that change the pending plan and so deserve a snapshot."""


class Keeper:
    """Keeps what one session does; a `relay.run.leg.LegKeeper`.

    Args:
        ctx: The collaborators.
        handover: What the session starts from.
        notes: What its tools note; read after each call.
        is_busy: Whether a command runs in the background, so that files change which no call has changed.
    """

    def __init__(self, ctx: RunContext, handover: Handover, notes: LegNotes, *, is_busy: Callable[[], bool]) -> None:
        self.leg = handover.leg
        """The open leg, with its newest snapshot."""
        self._ctx = ctx
        self._notes = notes
        self._is_busy = is_busy
        self._begun = handover.pending
        self._recorded = 0
        self._unsaved_calls = 0
        self._on_disk = {path: read_file(ctx.repo.root, path) for path in (ctx.plan_path, ctx.ledger_path)}

    @property
    def pending(self) -> PendingPlan:
        """What the session started from with what it has noted; amendments are in the notes' plan already."""
        return replace(self._begun, plan=self._notes.plan.tick(self._notes.claims))

    def take_call(self, call: ToolCall, result: ToolResult) -> ToolResult:
        """Keep what a call has changed and noted; return its result, with what relay has put back."""
        self._unsaved_calls += 1
        if result.changed_paths is None:
            result = self._put_plan_back(call, result)
        self._take_records()
        # Last: the snapshot holds the ledger with the new records, and the plan as it was put back.
        self._store(call, result)
        return result

    def save(
        self,
        *,
        paths: tuple[str, ...] | None = None,
        baton: str = "",
        trailers: tuple[tuple[str, str], ...] = (),
    ) -> None:
        """Store a snapshot with claims, pending plan and what was spent.

        Args:
            paths: What may have changed since the last one; None looks at the whole tree.
            baton: For the next session; empty while this one goes on.
            trailers: What else the snapshot says.
        """
        pending = self.pending
        record = WipRecord(
            spend=self._ctx.meter.unrecorded,
            items=pending.claimed_ids,
            baton=baton,
            replace=pending.render_files(self._ctx.plan_path, self._ctx.ledger_path),
            paths=paths,
            trailers=trailers,
        )
        self.leg = save_wip(self._ctx.repo, self.leg, record)
        self._unsaved_calls = 0

    def save_end(self, trailers: tuple[tuple[str, str], ...], gate_words: str, *, hurried: bool) -> None:
        """Leave the work in the tree and store it with a baton; the leg stays open for the next session."""
        baton = "" if hurried else self.render_baton(gate_words)
        self.save(paths=() if hurried else None, baton=baton, trailers=trailers)

    def note_wait(self, until: float) -> None:
        """Store until when a limit lasts, before waiting for it."""
        self.save(paths=(), trailers=render_wait(until, self._ctx.settings.model))

    def show_plan(self, *, committed: bool = False) -> None:
        """Show the plan with what is claimed; once it is `committed`, that is done."""
        pending = self.pending
        self._ctx.observe(render_plan(pending.plan, committed=pending.plan if committed else pending.head))

    def render_baton(self, gate_words: str) -> str:
        """Return what the next session is told; `gate_words` is the last refusal of the commit step, or empty."""
        now = write_snapshot_tree(self._ctx.repo)
        notes = self._notes
        asked = notes.hand_off
        records = tuple(f"{record.claim} (because {record.because})" for record in notes.records)
        last_errors = tuple(f"{name}: {' '.join(text.split())[:200]}" for name, text in notes.last_errors.items())
        text = render_baton(
            Baton(
                done=tuple(f"{item}: {notes.claims.get(item, 'ticked earlier')}" for item in self.pending.claimed_ids),
                open=notes.open_ids(),
                next_step=asked.next_step if asked else "",
                learned=(*asked.learned, *records) if asked else records,
                dead_ends=asked.dead_ends if asked else last_errors,
                files=find_owned_paths(self._ctx.repo, self._ctx.plan_path, self.leg, now)[:50],
                gate=gate_words,
                author="model" if asked else "relay",
            )
        )
        return redact(text, environ_values=self._ctx.secret_values)

    def _store(self, call: ToolCall, result: ToolResult) -> None:
        """Snapshot what a call changed; where nothing changes, now and then what looking around has cost."""
        paths = result.changed_paths
        noted = call.name in _NOTED and not result.is_error
        if noted:
            self.show_plan()
        if noted or paths is None or paths or self._unsaved_calls >= MAX_UNSAVED_CALLS:
            self.save(paths=None if self._is_busy() else paths)

    def _take_records(self) -> None:
        """Put new findings into the ledger, with the content that each was read from: later it may be another."""
        root = self._ctx.repo.root
        for record in self._notes.records[self._recorded :]:
            found = {s.path: read_file(root, s.path) for s in record.sources if (root / s.path).is_file()}
            blobs = {path: find_blob_id(self._ctx.repo, data) for path, data in found.items() if data is not None}
            self._begun = self._begun.record(record, blobs)
            self._recorded += 1

    def _put_plan_back(self, call: ToolCall, result: ToolResult) -> ToolResult:
        """Undo what an unconfined command did to the plan; inside a sandbox it can only have been the user."""
        if self._ctx.workspace.sandbox.mechanism is not Mechanism.OFF:
            return result
        root = self._ctx.repo.root
        changed = [path for path, data in self._on_disk.items() if read_file(root, path) != data]
        if not changed:
            return result
        self.save()  # what was found stays under refs/relay
        for path in changed:
            restore = self._on_disk[path]
            if restore is None:
                (root / path).unlink(missing_ok=True)
            else:
                replace_file(root, path, restore, FILE)
        names = ", ".join(changed)
        self._ctx.observe(PlanRestored(tool=call.name, summary=f"{names} was changed and put back"))
        words = f"\n\nrelay: this changed {names}, which only relay writes; it was put back. Use tick, record or amend."
        return ToolResult(text=result.text + words, is_error=True, changed_paths=None)
