"""Findings of a review as data: read, judged, kept in a checkpoint, written as SARIF."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.run.review import (
    MAX_FINDINGS,
    Category,
    ReviewFinding,
    ReviewVerdict,
    Severity,
    apply_verdicts,
    choose_for_refutation,
    compute_digest,
    list_confirmed,
    parse_finding_json,
    read_findings,
    render_finding,
    render_finding_json,
    render_sarif,
)
from tests.effort import try_each

GIVEN = {
    "file": "./a.py", "line": 3, "summary": "wrong  sum", "failure_scenario": "add 1\nand 1",
    "category": "correctness", "severity": "important",
}  # fmt: skip
FINDINGS = st.builds(
    ReviewFinding, file=st.text(min_size=1), line=st.integers(0, 10**6), summary=st.text(), failure_scenario=st.text(),
    category=st.sampled_from(Category), severity=st.sampled_from(Severity), verdict=st.sampled_from(ReviewVerdict),
    reason=st.text(),
)  # fmt: skip


def test_what_a_tool_was_called_with_is_read_as_one_line_each():
    (found,) = read_findings([GIVEN])

    assert (found.file, found.summary, found.failure_scenario) == ("a.py", "wrong sum", "add 1 and 1")
    assert render_finding(found) == "a.py:3: wrong sum — add 1 and 1"
    assert read_findings([GIVEN | {"line": -1}])[0].line == 0


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([GIVEN | {"category": "style"}], "finding 1: 'style' is not a valid Category. Allowed: category: correctness"),
        ([GIVEN, GIVEN | {"severity": "huge"}], "finding 2: 'huge' is not a valid Severity"),
        ([GIVEN | {"summary": " "}], "must not be empty"),
        ([GIVEN] * (MAX_FINDINGS + 1), "report the 32 that matter most"),
    ],
)
def test_what_is_not_allowed_is_said(given, words):
    with pytest.raises(ValueError, match=words.replace("(", r"\(")):
        read_findings(given)


def test_what_is_important_is_judged_wherever_it_is():
    """A change breaks what it does not touch; that it was so before, the second session says."""
    important, nit, elsewhere = read_findings([GIVEN, GIVEN | {"severity": "nit"}, GIVEN | {"file": "b.py"}])

    assert choose_for_refutation((important, nit, elsewhere)) == (important, elsewhere)


def test_a_verdict_without_a_reason_confirms_nothing():
    """Nor does none at all, nor one for a number that nobody asked about; the last one counts."""
    asked = read_findings([GIVEN | {"line": line} for line in range(4)])
    verdicts = [
        {"number": 1, "confirmed": True, "reason": " "},
        {"number": 2, "confirmed": False, "reason": "no"},
        {"number": 2, "confirmed": True, "reason": "it does"},
        {"number": 3, "confirmed": False, "reason": "it does not"},
        {"number": 9, "confirmed": True, "reason": "what?"},
    ]

    judged = apply_verdicts(asked, asked, verdicts)

    assert [one.verdict for one in judged] == ["refuted", "confirmed", "refuted", "refuted"]
    assert list_confirmed(judged) == (judged[1],)
    assert [one.reason for one in judged] == ["", "it does", "it does not", "no verdict"]


@given(st.lists(FINDINGS, max_size=4))
def test_findings_survive_their_json(findings):
    lines = [render_finding_json(finding) for finding in findings]

    assert [parse_finding_json(line) for line in lines] == findings
    assert all(len(line.splitlines()) <= 1 or "\n" not in line for line in lines)
    assert compute_digest(findings) == compute_digest(tuple(findings))


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"file": 1}', "[" * 50_000, render_finding_json(read_findings([GIVEN])[0])[:-9]]
)
def test_what_nobody_wrote_is_no_finding(text):
    assert parse_finding_json(text) is None


@try_each()
@given(st.lists(FINDINGS, max_size=4))
def test_sarif_has_a_result_for_each_that_was_not_refuted(findings):
    log = render_sarif(findings, version="1", name="main/x..HEAD")

    (run,) = log["runs"]
    rules = {rule["id"] for rule in run["tool"]["driver"]["rules"]}
    shown = [finding for finding in findings if finding.verdict is not ReviewVerdict.REFUTED]
    assert [result["ruleId"] for result in run["results"]] == [finding.category for finding in shown]
    assert all(result["ruleId"] in rules for result in run["results"])
    assert run["automationDetails"]["id"] == "relay review/main-x..HEAD/"
    prints: dict[tuple[str, ...], dict[str, str]] = {}
    for result, finding in zip(run["results"], shown, strict=True):
        assert result["locations"][0]["physicalLocation"]["region"]["startLine"] == max(1, finding.line)
        key = finding.category, finding.file, finding.summary
        assert prints.setdefault(key, result["partialFingerprints"]) == result["partialFingerprints"]
    assert len({one["relayFinding/v1"] for one in prints.values()}) == len(prints)
