"""Which filters of the user's own relay may run outside of the sandbox: those whose code no session writes."""

import os
import sys
from pathlib import Path

import pytest

from relay.git.config_guard import guard, runs_outside

OUTSIDE = (
    "git-lfs clean -- %f",
    "git-lfs filter-process",
    "git annex smudge --clean -- %f",
    "/usr/bin/git-crypt clean",
    "~/bin/clean-notebook",
    "nbstripout",
    "sed -e 's/[ \\t]*$//'",
    "sed 's/a/b/' | tr a-z A-Z",
    "jq --indent 1 '.cells[].outputs = []'",
    "indent -kr -i4",
    "",
)
INSIDE = (
    "tools/clean",
    "./clean",
    "@ROOT@/clean",
    "@LINK@/clean",
    "sh -c 'tools/clean'",
    "/bin/sh tools/clean",
    "bash clean",
    "env PATH=. clean",
    "A=b clean",
    "python3 tools/clean.py",
    "python3 -c 'import clean'",
    "@OLD@ -m nbstripout",
    "ruby -Ilib clean.rb",
    "npx nbstripout",
    "prettier --stdin-filepath %f",
    "make -s clean",
    "git-lfs clean; tools/clean",
    "true && ./clean",
    "(./clean)",
    "cat | sh",
    "sed -f tools/clean.sed",
    "sed -nf clean.sed",
    "awk -f clean.awk",
    "clean --config=tools/clean.conf",
    "clean present",
    "clean `cat tools/x`",
    "clean $(cat tools/x)",
    "clean $X",
    "clean < tools/x",
    "clean 'unclosed",
    "xargs tools/clean",
)


@pytest.fixture
def places(tmp_path):
    root = tmp_path / "repo"
    root.mkdir()
    (root / "present").touch()
    (tmp_path / "link").symlink_to(root)
    old = tmp_path / "python3.10"
    old.touch()
    return {"@ROOT@": root, "@LINK@": tmp_path / "link", "@OLD@": old}


def fill(command, places):
    for name, place in places.items():
        command = command.replace(name, str(place))
    return command


def find_outside(commands, places):
    return [command for command in commands if runs_outside(fill(command, places), places["@ROOT@"])]


def test_what_cannot_be_in_the_work_tree_runs(places):
    assert find_outside(OUTSIDE, places) == [*OUTSIDE]


def test_what_may_be_in_the_work_tree_does_not(places):
    assert find_outside(INSIDE, places) == []


def test_a_module_of_the_interpreter_runs_where_the_current_directory_is_off_its_path(places):
    """What `nbstripout --install --global` writes."""
    real = Path(os.path.realpath(sys.executable))
    assert runs_outside(f'"{real}" -m nbstripout', places["@ROOT@"])


def test_a_filter_in_the_work_tree_is_switched_off_with_its_demand(box):
    """Git would fail on every file of a driver that is required and has no command any more."""
    box.git("config", "--global", "filter.nb.clean", "python3 tools/clean.py")
    box.git("config", "--global", "filter.nb.required", "true")
    box.write("a.ipynb", "x\n")
    box.write(".gitattributes", "*.ipynb filter=nb\n")
    guarded = guard(box.open())
    assert dict(guarded.git.settings)["filter.nb.clean"] == ""
    assert dict(guarded.git.settings)["filter.nb.required"] == "false"


def test_a_signing_program_in_the_work_tree_is_not_the_users(box):
    """A relative path is looked for where a session writes; only such a setting of the user's is left out."""
    for key, value in (
        ("gpg.program", "tools/gpg"),
        ("gpg.x509.program", "/usr/bin/gpg sm"),
        ("gpg.ssh.defaultKeyCommand", "sh tools/key"),
        ("user.signingKey", "tools/key"),
    ):
        box.git("config", "--global", key, value)
    trusted = {setting.key for setting in guard(box.open()).config if setting.trusted}
    assert {"gpg.x509.program", "user.signingkey"} <= trusted
    assert not {"gpg.program", "gpg.ssh.defaultkeycommand"} & trusted
