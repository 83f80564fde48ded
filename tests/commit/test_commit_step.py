"""The commit step lets through what was claimed and checked, whoever made the pending plan, and nothing else."""

from dataclasses import replace

from relay.plan.parse import parse_plan
from relay.run.commit.candidate import PhaseCommit, Refused
from relay.session.events import GateFinished
from relay.session.values import SessionKind
from tests.commit.candidate import commit_each
from tests.scripted import ScriptedRunner


def commit(stage, *claims):
    """Do the work of phase 1 and commit it with the plans that these make of HEAD's, one after the other."""
    with stage.enter(SessionKind.RUN, runner=ScriptedRunner([])) as ctx:
        return list(commit_each(stage, ctx, claims))


def tick(head):
    return head.tick(["1.1"])


def rewrite(plan, old, new):
    assert old in plan.text
    return parse_plan(plan.text.replace(old, new))


FORGED = {
    "item 2.1 was ticked; only 1.1 may be ticked": lambda head: head.tick(["1.1", "2.1"]),
    "found `# Threats`": lambda head: rewrite(head, "# Greetings", "# Threats").tick(["1.1"]),
    "item 2.2 was ticked": lambda head: replace(tick(head), text=head.tick(["1.1", "2.2"]).text),
    "item 1.2 was ticked; only 1.1 may be ticked": lambda head: replace(
        tick(head), text=head.tick(["1.1", "1.2"]).text
    ),
}


def test_a_forged_plan_is_refused_and_what_was_claimed_is_committed(stage):
    """A session's tools cannot forge one; this is what stands between a mistake of relay's own and the branch.

    Another phase's item, other words, a text that the value does not say, an item of the phase that nobody claimed.
    """
    stage.edit("- [ ] Say hello — hello.txt\n", "- [ ] Say hello — hello.txt\n- [ ] Say more — more.txt\n")
    stage.commit("plan")

    *forged, made = commit(stage, *FORGED.values(), tick)

    assert [isinstance(one, Refused) for one in forged] == [True] * len(FORGED)
    assert [words for words, one in zip(FORGED, forged, strict=True) if words not in one.for_user] == []
    assert isinstance(made, PhaseCommit), made
    assert [done.items for done in stage.commits()] == [("1.1",)]


def gate_with(stage, command):
    stage.write("PLAN.md", f"## Phase 1\nVerify: `test -f hello.txt && {command}`\n- [ ] Say hello — hello.txt\n")
    stage.commit("plan")


def test_a_gate_that_formats_what_it_checks_has_to_agree_with_it(stage):
    """What is committed is what the last run of the gate found, and that run changed nothing."""
    gate_with(stage, "sed -i s/^hello$/formatted/ hello.txt")

    (made,) = commit(stage, tick)

    assert isinstance(made, PhaseCommit), made
    assert [gate.passed for gate in stage.seen(GateFinished) if not gate.baseline] == [True, True]
    assert stage.git("show", "HEAD:hello.txt") == "formatted\n"


def test_a_gate_that_never_agrees_with_what_it_checks_is_refused(stage):
    gate_with(stage, "echo more >> hello.txt")

    (made,) = commit(stage, tick)

    assert isinstance(made, Refused)
    assert "the gate itself keeps changing the files that it checks: hello.txt" in made.for_user
    assert stage.commits() == ()


def test_a_gate_and_a_hook_that_rewrite_each_others_file_are_refused(stage):
    """No commit would hold a file that the gate leaves as it is."""
    gate_with(stage, "sed -i s/^formatted$/hello/ hello.txt")
    hook = stage.root / ".git/hooks/pre-commit"
    hook.write_text("#!/bin/sh\ntest ! -e hello.txt || sed -i s/^hello$/formatted/ hello.txt\n")
    hook.chmod(0o755)

    (made,) = commit(stage, tick)

    assert isinstance(made, Refused)
    assert "hello.txt" in made.for_user
    assert stage.commits() == ()
