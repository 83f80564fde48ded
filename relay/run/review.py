"""The two sessions of a review: one looks for faults, and a fresh one tries to refute them.

Neither session writes anything, sees the author's words, or knows that the other session is of the same kind.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from enum import StrEnum
from typing import Any
from urllib.parse import quote

from msgspec import convert

from relay.base.values import dataclass
from relay.prompts.texts import (
    ReviewBriefing,
    render_critic_message,
    render_refuter_message,
    render_reviewer_message,
    render_system,
)
from relay.run.reader import Errand, Incomplete, Readers, TakenT, ask
from relay.session.events import ShownFinding
from relay.tools.toolbox import JUDGE_FINDINGS, REPORT_FINDINGS

MAX_FINDINGS = 32
"""Most findings of one round. Source: the ReportFindings tool of Claude Code."""
MAX_CHARS = 1_000
"""Most characters of each text of a finding."""


class Severity(StrEnum):
    """Importance of a finding."""

    IMPORTANT = "important"
    """Wrong results, lost data, a security hole, a broken promise: repaired before the commit."""
    NIT = "nit"
    """Reported, never repaired."""


class Category(StrEnum):
    """Subject of a finding."""

    CORRECTNESS = "correctness"
    SECURITY = "security"
    TESTS = "tests"
    """A test was deleted, weakened or cannot fail; always important."""
    MISSING = "missing"
    """The phase asks for something that does not exist."""
    OTHER = "other"


class ReviewVerdict(StrEnum):
    """The second session's verdict on a finding."""

    CONFIRMED = "confirmed"
    """It found the place and a scenario that fails."""
    REFUTED = "refuted"
    UNEXAMINED = "unexamined"
    """A nit: the second session does not get it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewFinding:
    """A fault that a reviewer reports."""

    file: str
    line: int
    """1-based; 0 for the whole file."""
    summary: str
    failure_scenario: str
    """A user's action, and the wrong result."""
    category: Category
    severity: Severity
    verdict: ReviewVerdict = ReviewVerdict.UNEXAMINED
    reason: str = ""
    """The second session's reason."""


def read_findings(given: Sequence[Mapping[str, Any]]) -> tuple[ReviewFinding, ...]:
    """Return the findings of a tool call; its schema has been checked, its values have not.

    Raises:
        ValueError: A value is invalid; the message is for the model.
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
    """Return the findings for the second session: the important ones, even in files that the change does not touch."""
    return tuple(finding for finding in findings if finding.severity is Severity.IMPORTANT)


def apply_verdicts(
    findings: Sequence[ReviewFinding], asked: Sequence[ReviewFinding], verdicts: Sequence[Mapping[str, Any]]
) -> tuple[ReviewFinding, ...]:
    """Return all findings with their verdicts; an examined finding without a verdict is refuted.

    Args:
        asked: The second session's findings, numbered from 1.
        verdicts: ``{"number", "confirmed", "reason"}`` each; the last one for a number counts.
    """
    found = {entry["number"]: entry for entry in verdicts}
    judged: dict[ReviewFinding, ReviewFinding] = {}
    for number, finding in enumerate(asked, 1):
        entry = found.get(number, {"confirmed": False, "reason": "no verdict"})
        reason = " ".join(str(entry["reason"]).split())[:MAX_CHARS]
        # Without a reason of its own, the second session has only agreed.
        verdict = ReviewVerdict.CONFIRMED if entry["confirmed"] and reason else ReviewVerdict.REFUTED
        judged[finding] = replace(finding, verdict=verdict, reason=reason)
    return tuple(judged.get(finding, finding) for finding in findings)


def list_confirmed(findings: Sequence[ReviewFinding]) -> tuple[ReviewFinding, ...]:
    """Return the findings to be repaired."""
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
    """Return findings in the form of the review's event."""
    return tuple(json.loads(render_finding_json(finding)) for finding in findings)


def render_finding_json(finding: ReviewFinding) -> str:
    """Return a finding as one line of JSON."""
    return json.dumps(asdict(finding), ensure_ascii=False, separators=(",", ":"))


def parse_finding_json(text: str) -> ReviewFinding | None:
    """Parse the text of `render_finding_json`; None for any other text."""
    try:
        return convert(json.loads(text), ReviewFinding)
    except (ValueError, RecursionError):
        return None


def compute_digest(findings: Sequence[ReviewFinding]) -> str:
    """Return twelve hexadecimal digits, the same for the same findings in the same order."""
    text = "\n".join(map(render_finding_json, findings))
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:12]


_LEVELS = {ReviewVerdict.CONFIRMED: "error", ReviewVerdict.UNEXAMINED: "note"}
_RULES = {
    Category.CORRECTNESS: "The change does something wrong.",
    Category.SECURITY: "The change opens a hole.",
    Category.TESTS: "A test was deleted, weakened or cannot fail.",
    Category.MISSING: "Something that was asked for is not there.",
    Category.OTHER: "Something else.",
}


def render_sarif(findings: Sequence[ReviewFinding], *, version: str, name: str) -> dict[str, Any]:
    """Return a SARIF log with one run.

    Args:
        findings: Refuted ones are left out: code hosts would show them as open, whatever the log says.
        version: relay's version.
        name: Name of the reviewed range. A later log of that name replaces this one.
    """
    shown = [finding for finding in findings if finding.verdict is not ReviewVerdict.REFUTED]
    rules = [{"id": category.value, "shortDescription": {"text": text}} for category, text in _RULES.items()]
    driver = {"name": "relay", "version": version, "rules": rules}
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": driver},
                "automationDetails": {"id": f"relay review/{name.replace('/', '-')}/"},
                "results": [_render_result(finding) for finding in shown],
            }
        ],
    }


def _render_result(finding: ReviewFinding) -> dict[str, Any]:
    place: dict[str, Any] = {"artifactLocation": {"uri": quote(finding.file, errors="surrogateescape")}}
    place["region"] = {"startLine": finding.line or 1}  # code hosts hide results without a line
    said = f"{finding.category.value}\n{finding.file}\n{finding.summary}".encode("utf-8", "backslashreplace")
    return {
        "ruleId": finding.category.value,
        "level": _LEVELS[finding.verdict],
        "message": {"text": f"{finding.summary}\n{finding.failure_scenario}"},
        "locations": [{"physicalLocation": place}],
        "partialFingerprints": {"relayFinding/v1": hashlib.sha256(said).hexdigest()},
        "properties": {"severity": finding.severity.value, "verdict": finding.verdict.value},
    }


def review(readers: Readers, briefing: ReviewBriefing) -> tuple[ReviewFinding, ...] | Incomplete:
    """Have a change reviewed, and the findings refuted if possible; return the findings in the report's order."""
    errand = Errand(
        title="review",
        reason="A fresh session looks for faults in the change.",
        system=render_system("reviewer", readers.ctx.rules.text),
        message=render_reviewer_message(briefing),
        tool=REPORT_FINDINGS,
    )
    return _find_and_refute(readers, errand)


def criticize(readers: Readers, request: str, plan_text: str) -> tuple[ReviewFinding, ...] | Incomplete:
    """Have a plan reviewed in the same way; `request` is what the user asked the planner for."""
    errand = Errand(
        title="critic",
        reason="A fresh session looks for faults in the plan.",
        system=render_system("critic", readers.ctx.rules.text),
        message=render_critic_message(request, plan_text),
        tool=REPORT_FINDINGS,
    )
    return _find_and_refute(readers, errand, plan_text)


def _find_and_refute(readers: Readers, errand: Errand, plan_text: str = "") -> tuple[ReviewFinding, ...] | Incomplete:
    found = _ask(readers, errand, lambda given: read_findings(given["findings"]))
    if isinstance(found, Incomplete):
        return found
    asked = choose_for_refutation(found)
    if not asked:
        return found
    errand = Errand(
        title="refutation",
        reason="Another fresh session tries to refute the findings.",
        system=render_system("refuter", readers.ctx.rules.text, what="plan" if plan_text else "change"),
        message=render_refuter_message(render_numbered(asked), plan_text),
        tool=JUDGE_FINDINGS,
    )
    verdicts = _ask(readers, errand, lambda given: tuple(given["verdicts"]))
    return verdicts if isinstance(verdicts, Incomplete) else apply_verdicts(found, asked, verdicts)


def _ask(readers: Readers, errand: Errand, read: Callable[[Mapping[str, Any]], TakenT]) -> TakenT | Incomplete:
    found = ask(readers, errand, read)
    if isinstance(found, Incomplete):
        return replace(found, detail=f"the {errand.title} did not come to an end: {found.detail}")
    return found
