"""Findings as SARIF 2.1.0, which code hosts show beside the lines. Pure.

Source: OASIS, Static Analysis Results Interchange Format 2.1.0; GitHub, *SARIF support for code scanning*.
"""

import hashlib
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from relay.run.review.finding import Category, ReviewFinding, ReviewVerdict

_LEVELS = {ReviewVerdict.CONFIRMED: "error", ReviewVerdict.UNEXAMINED: "note"}
_RULES = {
    Category.CORRECTNESS: "The change does something wrong.",
    Category.SECURITY: "The change opens a hole.",
    Category.TESTS: "A test was deleted, weakened or cannot fail.",
    Category.MISSING: "Something that was asked for is not there.",
    Category.OTHER: "Something else.",
}


def render_sarif(findings: Sequence[ReviewFinding], *, version: str, name: str) -> dict[str, Any]:
    """Return a log with one run.

    Args:
        findings: Refuted ones are left out: code hosts would show them as open, whatever the log says of them.
        version: relay's own.
        name: Of what was reviewed. A further log of that name takes the place of this one.
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
    place["region"] = {"startLine": finding.line or 1}  # code hosts show none without a line
    said = f"{finding.category.value}\n{finding.file}\n{finding.summary}".encode("utf-8", "backslashreplace")
    return {
        "ruleId": finding.category.value,
        "level": _LEVELS[finding.verdict],
        "message": {"text": f"{finding.summary}\n{finding.failure_scenario}"},
        "locations": [{"physicalLocation": place}],
        "partialFingerprints": {"relayFinding/v1": hashlib.sha256(said).hexdigest()},
        "properties": {"severity": finding.severity.value, "verdict": finding.verdict.value},
    }
