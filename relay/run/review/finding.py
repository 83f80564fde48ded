"""What a reviewer says of a change, as data. Pure.

The fields are those of the ReportFindings tool of other agents, so that what reads theirs reads ours.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from enum import StrEnum
from typing import Any

from relay.base.values import dataclass
from relay.session.shapes import ShownFinding

MAX_FINDINGS = 32
"""Of one round. Source: the ReportFindings tool of Claude Code."""
MAX_CHARS = 1_000
"""Of a text of a finding."""


class Severity(StrEnum):
    """How much a finding matters."""

    IMPORTANT = "important"
    """Wrong results, lost data, a security hole, a broken promise: repaired before the commit."""
    NIT = "nit"
    """Reported, never repaired."""


class Category(StrEnum):
    """What a finding is about."""

    CORRECTNESS = "correctness"
    SECURITY = "security"
    TESTS = "tests"
    """A test that was deleted, weakened or cannot fail; always important."""
    MISSING = "missing"
    """Something that the phase asks for and that is not there."""
    OTHER = "other"


class ReviewVerdict(StrEnum):
    """What the second session made of a finding."""

    CONFIRMED = "confirmed"
    """It found the place and a scenario that fails."""
    REFUTED = "refuted"
    UNEXAMINED = "unexamined"
    """A nit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewFinding:
    """One thing that a reviewer says is wrong."""

    file: str
    line: int
    """1-based; 0 where the finding is about the whole file."""
    summary: str
    failure_scenario: str
    """What somebody does, and what goes wrong then."""
    category: Category
    severity: Severity
    verdict: ReviewVerdict = ReviewVerdict.UNEXAMINED
    reason: str = ""
    """The second session's."""


def read_findings(given: Sequence[Mapping[str, Any]]) -> tuple[ReviewFinding, ...]:
    """Read what a tool was called with; its schema has been checked, its values not.

    Raises:
        ValueError: With words for the model: a value that is not allowed.
    """
    if len(given) > MAX_FINDINGS:
        raise ValueError(f"{len(given)} findings; report the {MAX_FINDINGS} that matter most")
    return tuple(_read_finding(number, entry) for number, entry in enumerate(given, 1))


def _read_finding(number: int, entry: Mapping[str, Any]) -> ReviewFinding:
    try:
        category, severity = Category(entry["category"]), Severity(entry["severity"])
    except ValueError as error:
        allowed = f"category: {', '.join(Category)}; severity: {', '.join(Severity)}"
        raise ValueError(f"finding {number}: {error}. Allowed: {allowed}") from None
    if category is Category.TESTS:
        severity = Severity.IMPORTANT
    names = ("file", "summary", "failure_scenario")
    file, summary, scenario = (" ".join(str(entry[name]).split())[:MAX_CHARS] for name in names)
    if not (file and summary and scenario):
        raise ValueError(f"finding {number}: {', '.join(names)} must not be empty")
    return ReviewFinding(
        file=file.removeprefix("./"),
        line=max(0, entry["line"]),
        summary=summary,
        failure_scenario=scenario,
        category=category,
        severity=severity,
    )


def choose_for_refutation(findings: Sequence[ReviewFinding]) -> tuple[ReviewFinding, ...]:
    """Return what a second session looks at: the important ones, also in a file that the change only breaks."""
    return tuple(finding for finding in findings if finding.severity is Severity.IMPORTANT)


def apply_verdicts(
    findings: Sequence[ReviewFinding], asked: Sequence[ReviewFinding], verdicts: Sequence[Mapping[str, Any]]
) -> tuple[ReviewFinding, ...]:
    """Return all findings with what was made of them; what was asked and got no verdict is refuted.

    Args:
        asked: Those that the second session was given, numbered from 1.
        verdicts: ``{"number", "confirmed", "reason"}`` each; the last one for a number counts.
    """
    found = {entry["number"]: entry for entry in verdicts}
    judged: dict[ReviewFinding, ReviewFinding] = {}
    for number, finding in enumerate(asked, 1):
        entry = found.get(number, {"confirmed": False, "reason": "no verdict"})
        reason = " ".join(str(entry["reason"]).split())[:MAX_CHARS]
        # Without a scenario of its own the second session has only agreed.
        verdict = ReviewVerdict.CONFIRMED if entry["confirmed"] and reason else ReviewVerdict.REFUTED
        judged[finding] = replace(finding, verdict=verdict, reason=reason)
    return tuple(judged.get(finding, finding) for finding in findings)


def list_confirmed(findings: Sequence[ReviewFinding]) -> tuple[ReviewFinding, ...]:
    """Return those that have to be repaired."""
    return tuple(finding for finding in findings if finding.verdict is ReviewVerdict.CONFIRMED)


def render_finding(finding: ReviewFinding) -> str:
    """Return a finding as one line for a person."""
    place = f"{finding.file}:{finding.line}" if finding.line else finding.file
    return f"{place}: {finding.summary} — {finding.failure_scenario}"


def render_numbered(findings: Sequence[ReviewFinding]) -> str:
    """Return findings for a model, numbered from 1."""
    lines = []
    for number, finding in enumerate(findings, 1):
        lines.append(f"{number}. [{finding.category}] {render_finding(finding)}")
        if finding.reason:
            lines.append(f"   Confirmed: {finding.reason}")
    return "\n".join(lines)


def show_findings(findings: Sequence[ReviewFinding]) -> tuple[ShownFinding, ...]:
    """Return findings as the event of a review has them."""
    return tuple(json.loads(render_finding_json(finding)) for finding in findings)


def render_finding_json(finding: ReviewFinding) -> str:
    """Return a finding as one line of JSON."""
    return json.dumps(asdict(finding), ensure_ascii=False, separators=(",", ":"))


def parse_finding_json(text: str) -> ReviewFinding | None:
    """Undo `render_finding_json`; None for what is not relay's."""
    try:
        body = json.loads(text)
        return ReviewFinding(
            file=str(body["file"]),
            line=int(body["line"]),
            summary=str(body["summary"]),
            failure_scenario=str(body["failure_scenario"]),
            category=Category(body["category"]),
            severity=Severity(body["severity"]),
            verdict=ReviewVerdict(body["verdict"]),
            reason=str(body["reason"]),
        )
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def compute_digest(findings: Sequence[ReviewFinding]) -> str:
    """Return twelve hexadecimal digits of what was found, the same for the same findings in the same order."""
    text = "\n".join(map(render_finding_json, findings))
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:12]
