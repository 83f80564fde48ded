"""The test command of a repository, read off its files."""

from relay.gate.needs import find_test_command

ROWS: list[tuple[dict[str, str], str | None]] = [
    ({"Makefile": "all:\n\ntest: build\n\tpytest\n"}, "make test"),
    ({"Makefile": "check:\n\tx\n"}, "make check"),
    ({"Makefile": "test := 1\nall:\n"}, None),
    ({"package.json": '{"scripts": {"test": "ava"}}'}, "npm test"),
    ({"package.json": '{"scripts": {"test": "vitest"}}', "pnpm-lock.yaml": ""}, "pnpm test"),
    ({"package.json": '{"scripts": {"test": "echo \\"Error: no test specified\\" && exit 1"}}'}, None),
    ({"package.json": "{" * 5000}, None),
    ({"package.json": "[]"}, None),
    ({"pyproject.toml": "[tool.pytest.ini_options]\n"}, "python3 -m pytest -q"),
    ({"pyproject.toml": "[tool.pytest]\n", "uv.lock": ""}, "uv run pytest -q"),
    ({"pyproject.toml": 'dev = ["pytest"]\n', "poetry.lock": ""}, "poetry run pytest -q"),
    ({"pytest.ini": ""}, "python3 -m pytest -q"),
    ({"manage.py": ""}, "python3 manage.py test"),
    ({"tests/test_a.py": ""}, "python3 -m unittest discover tests"),
    ({"tests/test_a.py": "", "tests/__init__.py": ""}, "python3 -m unittest discover"),
    ({"test_calc.py": "", "calc.py": ""}, "python3 -m unittest discover"),
    ({"test_calc.py": "", "tests/test_a.py": ""}, "python3 -m unittest discover tests"),
    ({"test_calc.py": "", "go.mod": ""}, "go test ./..."),
    ({"src/test_calc.py": "", "latest.py": ""}, None),
    ({"Cargo.toml": ""}, "cargo test"),
    ({"go.mod": ""}, "go test ./..."),
    ({"tox.ini": "[tox]\n"}, "tox"),
    ({"README.md": "make test"}, None),
    ({"pytest.ini": "", ".venv/bin/pytest": ""}, ".venv/bin/pytest -q"),
    ({"tests/test_a.py": "", "venv/bin/pytest": ""}, "venv/bin/pytest -q"),  # installed, and no file says so
]


def test_what_speaks_for_a_command(tmp_path):
    for number, (files, command) in enumerate(ROWS):
        for name, text in files.items():
            place = tmp_path / str(number) / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text)
            place.chmod(0o755)
        found = find_test_command(tmp_path / str(number))
        assert (found.command if found else None) == command, files
