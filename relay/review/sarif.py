"""Findings as SARIF 2.1.0, which code hosts show beside the lines. Pure.

Source: OASIS, Static Analysis Results Interchange Format 2.1.0; GitHub, *SARIF support for code scanning*.
"""

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from relay.review.finding import Category, ReviewFinding, ReviewVerdict

_LEVELS = {ReviewVerdict.CONFIRMED: "error", ReviewVerdict.UNEXAMINED: "note", ReviewVerdict.REFUTED: "none"}
_RULES = {
    Category.CORRECTNESS: "The change does something wrong.",
    Category.SECURITY: "The change opens a hole.",
    Category.TESTS: "A test was deleted, weakened or cannot fail.",
    Category.MISSING: "Something that was asked for is not there.",
    Category.OTHER: "Something else.",
}


def render_sarif(findings: Sequence[ReviewFinding], *, version: str) -> dict[str, Any]:
    """Return a log with one run.

    Args:
        findings: Refuted ones are kept, as suppressed.
        version: relay's own.
    """
    rules = [{"id": category.value, "shortDescription": {"text": text}} for category, text in _RULES.items()]
    driver = {"name": "relay", "version": version, "rules": rules}
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": [_render_result(finding) for finding in findings]}],
    }


def _render_result(finding: ReviewFinding) -> dict[str, Any]:
    place: dict[str, Any] = {"artifactLocation": {"uri": quote(finding.file, errors="surrogateescape")}}
    if finding.line:
        place["region"] = {"startLine": finding.line}
    result: dict[str, Any] = {
        "ruleId": finding.category.value,
        "level": _LEVELS[finding.verdict],
        "message": {"text": f"{finding.summary}\n{finding.failure_scenario}"},
        "locations": [{"physicalLocation": place}],
        "properties": {"severity": finding.severity.value, "verdict": finding.verdict.value},
    }
    if finding.verdict is ReviewVerdict.REFUTED:
        result["suppressions"] = [{"kind": "external", "justification": finding.reason}]
    return result
