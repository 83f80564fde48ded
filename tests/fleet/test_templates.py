"""What `relay fleet template` prints, as its scheduler starts it, once and again; `make templates` has the linters."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml


def find_k8s_script(text):
    (container,) = yaml.safe_load(text)["spec"]["template"]["spec"]["containers"]
    (mount,) = container["volumeMounts"]
    assert {"name": "HOME", "value": mount["mountPath"]} in container["env"]
    assert [*container["command"], "script"] == ["/bin/sh", "-ceu", "script"]
    (script,) = container["args"]
    return f"set -eu\n{script}".replace(mount["mountPath"], str(Path.cwd()))


def find_nomad_script(text):
    command, flags_and_script = re.findall(r"^ *(?:command|args) += (.*)$", text, re.MULTILINE)
    flags, script = json.loads(flags_and_script)
    assert (json.loads(command), flags) == ("/bin/sh", "-ceu")
    return f"set -eu\n{script}"


def find_actions_script(text):
    job = yaml.safe_load(text)["jobs"]["work"]
    steps = {step["name"]: step.get("run", "") for step in job["steps"] if "name" in step}
    assert all(step["uses"].count("@") == 1 for step in job["steps"] if "uses" in step)
    return (
        f'git clone "$RELAY_REMOTE" project 2>/dev/null || true\ncd project\n{steps["Let relay push"]}{steps["Work"]}\n'
        'cat "$RUNNER_TEMP/relay.txt"'
    )


@pytest.mark.parametrize(
    ("kind", "find_script"),
    [("actions", find_actions_script), ("slurm", str), ("k8s", find_k8s_script), ("nomad", find_nomad_script)],
)
def test_a_template_works_on_the_plan_in_a_clone_and_again_when_it_is_started_again(
    stage, tmp_path, monkeypatch, kind, find_script
):
    monkeypatch.chdir(tmp_path)
    printed = stage.relay("fleet", "template", kind)
    assert printed.returncode == 0, printed.stderr
    relay = tmp_path / "programs/relay"
    relay.parent.mkdir()
    relay.write_text('#!/bin/sh\necho "$(git branch --show-current) $*"\n')
    relay.chmod(0o755)
    environ = {
        **os.environ,
        "HOME": str(tmp_path),
        "PATH": f"{relay.parent}:{os.environ['PATH']}",
        "RELAY_REMOTE": str(stage.root),
        "RELAY_BRANCH": "main",
        "RUNNER_TEMP": str(tmp_path),
        "TOKEN": "t",
        "GITHUB_SERVER_URL": "https://github.com",
    }
    for _ in range(2):
        done = subprocess.run(
            ["bash", "-e", "-c", find_script(printed.stdout)],
            env=environ, capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
        assert (done.returncode, done.stdout) == (0, "main work --phase all\n"), done.stderr
