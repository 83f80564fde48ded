"""A proof is kept for the same confinement only, where nobody else can put one, until the machine starts anew."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from relay.base.tree import find_boot_id
from relay.sandbox.bwrap import find_bwrap
from relay.sandbox.policy import Level, Policy
from relay.sandbox.run import open_sandbox, prove

if find_bwrap() is None:
    pytest.skip("bwrap is not installed", allow_module_level=True)

Opens = Callable[..., bool]


@pytest.fixture
def proves(place: Any, tmp_path: Path) -> Opens:
    """Open a sandbox as a new process would; return whether it had to prove itself."""
    cache = tmp_path / "cache"

    def open_anew(level: Level = Level.READ_ONLY, **changes: Any) -> bool:
        policy: Policy = replace(place.policy, env={**place.policy.env, "XDG_CACHE_HOME": str(cache)})
        prove.cache_clear()
        open_sandbox(replace(policy, **changes), level).close()
        return prove.cache_info().misses > 0

    return open_anew


def get_proofs(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "cache" / "relay" / "proofs").iterdir())


def test_a_second_run_does_not_prove_the_same_again(proves: Opens, tmp_path: Path) -> None:
    assert [proves(), proves(), proves(Level.WORKSPACE_WRITE), proves(Level.WORKSPACE_WRITE)] == [True, False] * 2
    kept = get_proofs(tmp_path)
    assert len(kept) == 2
    assert {file.stat().st_mode & 0o777 for file in kept} == {0o600}
    assert kept[0].parent.stat().st_mode & 0o777 == 0o700


def test_a_linked_work_tree_of_another_repository_is_the_same(proves: Opens, tmp_path: Path) -> None:
    """Where git has its directory elsewhere, only its name differs."""
    proven = []
    for name in ("one", "another"):
        common, root = tmp_path / name / ".git", tmp_path / f"{name}.relay" / "1"
        own = common / "worktrees" / "1"
        own.mkdir(parents=True)
        (common / "config").touch()
        root.mkdir(parents=True)
        (root / ".git").write_text(f"gitdir: {own}\n")
        proven.append(proves(Level.WORKSPACE_WRITE, root=root, git_dirs=(own, common)))
    assert proven == [True, False]


def test_whatever_confines_differently_proves_itself(proves: Opens, place: Any, tmp_path: Path) -> None:
    assert proves()
    more = tmp_path / "more"
    more.mkdir()
    for changes in (
        {"network": True},
        {"unreadable": (place.root / "src",)},
        {"readable": (more,), "writable": (more,)},
    ):
        assert proves(**changes), changes
    (place.root / "src" / ".env").write_text("KEY=1\n")
    assert proves()
    assert not proves()


def test_a_proof_of_an_earlier_start_of_the_machine_goes(proves: Opens, tmp_path: Path) -> None:
    assert proves()
    (old,) = get_proofs(tmp_path)
    old.rename(old.with_name(old.name.replace(find_boot_id(), "0" * 36)))
    assert proves()
    assert [file.name for file in get_proofs(tmp_path)] == [old.name]


@pytest.mark.parametrize("kind", ["link", "directory", "writable by others", "in a directory of others"])
def test_a_proof_that_another_may_have_put_there_does_not_count(proves: Opens, tmp_path: Path, kind: str) -> None:
    assert proves()
    (proof,) = get_proofs(tmp_path)
    if kind == "writable by others":
        proof.chmod(0o666)
    elif kind == "in a directory of others":
        proof.parent.chmod(0o777)
    else:
        proof.unlink()
        proof.symlink_to(tmp_path) if kind == "link" else proof.mkdir()
    assert proves()


def test_no_proof_is_kept_where_commands_write(proves: Opens, tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    assert proves(Level.WORKSPACE_WRITE, writable=(tmp_path / "cache",))
    assert proves(Level.WORKSPACE_WRITE, writable=(tmp_path / "cache",))
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_cache_that_cannot_be_written_costs_a_proof_each_time(proves: Opens, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    assert proves()
    assert proves()
