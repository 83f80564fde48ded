"""How relay is got: the distribution's names and files, the image, the dev container, the workflows that release it."""

import json
import re
import subprocess
import tomllib
from pathlib import Path

import yaml

from relay import __version__

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
IMAGE = (ROOT / "Containerfile").read_text()


def test_both_names_start_the_same_program():
    assert set(PROJECT["project"]["scripts"]) == {"relay", "relay-build"}
    assert len(set(PROJECT["project"]["scripts"].values())) == 1


def test_the_wheel_has_manual_page_and_completions():
    assert PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["shared-data"] == {"share": "share"}


def test_each_python_that_is_promised_is_tried_by_the_release():
    promised = re.findall(r":: Python :: (3\.\d+)", "\n".join(PROJECT["project"]["classifiers"]))
    jobs = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())["jobs"]
    assert jobs["try"]["strategy"]["matrix"]["python"] == promised
    assert jobs["publish"]["needs"] == "try"


def test_the_changelog_has_notes_for_this_version():
    done = subprocess.run([ROOT / ".ci/notes", __version__], capture_output=True, text=True, check=True)
    assert "relay-build" in done.stdout
    assert "\n## " not in done.stdout
    assert subprocess.run([ROOT / ".ci/notes", "99.0"], capture_output=True, check=False).returncode


def test_a_workflow_uses_what_cannot_be_moved_and_holds_no_right_by_default():
    for path in WORKFLOWS:
        text = path.read_text()
        assert [used for used in re.findall(r"uses: (\S+)", text) if not re.search(r"@[0-9a-f]{40}$", used)] == []
        assert yaml.safe_load(text)["permissions"] == {}, path


def test_the_image_has_the_sandbox_and_an_ordinary_user():
    assert "bubblewrap git" in IMAGE
    assert re.findall(r"^USER (\S+)", IMAGE, re.MULTILINE) == ["relay"]


def test_the_dev_container_has_the_flags_of_the_page():
    described = json.loads((ROOT / ".devcontainer/devcontainer.json").read_text())
    assert (ROOT / ".devcontainer" / described["build"]["dockerfile"]).resolve() == ROOT / "Containerfile"
    assert f"`{' '.join(described['runArgs'])}`" in (ROOT / "docs/how-to/mac.md").read_text(encoding="utf-8")
