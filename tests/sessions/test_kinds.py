"""What a session of each kind may do."""

from relay.session.values import SessionKind


def test_only_a_run_commits_phases_and_only_it_and_a_rewind_write_the_work_tree():
    rows = {
        "writes": {SessionKind.RUN, SessionKind.REWIND},
        "is_offline": {SessionKind.EXPLORE},
        "plans": {SessionKind.PLAN, SessionKind.CONVERGE},
        "commits_phases": {SessionKind.RUN},
        "replaces_plan": {SessionKind.PLAN},
    }
    assert {name: {kind for kind in SessionKind if getattr(kind, name)} for name in rows} == rows
