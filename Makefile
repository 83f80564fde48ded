# The commands of this repository: make demo, make test, make test-nightly, make check, make agents, make transcripts, make crash, make toolchains, make templates, make report-browser, make pictures, make compare-kit, make fuzz, make docs, make site, make package, make audit, make clean.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SHARE ?= 1
TARGET ?= plan
SECONDS ?= 300

# What has no input and no output of its own; every branch of it is taken by tests that have none either, with the same
# few examples each time: a branch that only luck takes counts as one that no test takes.
PURE := relay/plan/*,relay/ledger/*,relay/session/*,relay/insight/figures.py,relay/insight/transcripts/conversation.py,relay/insight/transcripts/digest.py,relay/lab/comparing.py,relay/lab/statistics.py,relay/lab/tuning.py,relay/gate/model.py,relay/gate/checker_output.py,relay/gate/shell_line.py,relay/store/resume.py,relay/run/attempt/session.py
PURE_TESTS := tests/plan tests/transcripts tests/figures tests/sessions tests/context/test_gauge.py tests/resume/test_point.py \
	tests/gate/test_model.py tests/gate/test_verdict.py tests/gate/test_lint.py tests/gate/test_checker_output.py tests/gate/test_shell_line.py tests/settings/test_telemetry.py tests/lab/test_comparing.py tests/lab/test_tuning.py
# Without the long texts, which take no branch that others do not.
PURE_CASES := not linear_time

.PHONY: demo test test-nightly check pure coverage agents transcripts crash toolchains templates report-browser pictures compare-kit fuzz docs site package audit sandbox clean
.DELETE_ON_ERROR:

demo: $(VENV)/.run sandbox  ## run the example from plan to three commits on a rehearsed model: no key, no network
	@$(BIN)/relay demo

test: $(VENV)/.dev sandbox  ## run the tests, or those of one folder: make test ROOM=plan
	@.ci/in-memory $(BIN)/pytest $(if $(ROOM),tests/$(ROOM))

test-nightly: $(VENV)/.dev sandbox  ## the tests and those that are marked nightly, with many more examples and kills
	@HYPOTHESIS_PROFILE=nightly PYTEST_TIMEOUT=3600 $(BIN)/pytest $(if $(ROOM),tests/$(ROOM))

check: $(VENV)/.dev  ## formatter, linter, types, layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

pure: $(VENV)/.dev  ## the branches of the pure rooms that no test takes; none may be left
	@HYPOTHESIS_PROFILE=few .ci/in-memory $(BIN)/pytest --cov --cov-report= -k "$(PURE_CASES)" $(PURE_TESTS)
	@$(BIN)/coverage report --include='$(PURE)' --show-missing --skip-covered --fail-under=100

coverage: $(VENV)/.dev sandbox  ## run the tests and print the branch coverage of each room, in percent
	@.ci/in-memory $(BIN)/pytest --cov --cov-report=
	@for room in relay/*/; do echo "$$room $$($(BIN)/coverage report --include="$$room*" --format=total)"; done

transcripts: $(VENV)/.dev  ## small transcripts of the real agents for tests/transcripts/, made anew; needs the package registry
	$(BIN)/python -m rigs.agents.transcripts

agents: $(VENV)/.dev sandbox  ## the real agents, pinned, against the rehearsal server; needs the package registry and a gigabyte
	$(BIN)/python -m rigs.agents.real --write
	$(BIN)/python -m rigs.agents.phases claude opencode goose
	$(BIN)/python -m rigs.agents.phases codex pi
	$(BIN)/python -m rigs.agents.tunnel

crash: $(VENV)/.dev  ## kill relay at every system call that changes files, fail them, cut the power, kill the workers of a fleet: hours, as root
	$(BIN)/python -m rigs.crash --share $(SHARE)
	$(BIN)/python -m rigs.crash.landing --share $(SHARE)
	$(BIN)/python -m rigs.crash.open_phase --share $(SHARE)
	$(BIN)/python -m rigs.crash.powercut
	$(BIN)/python -m rigs.crash.fleet

toolchains: $(VENV)/.dev sandbox  ## real tools on real projects, from their registries: half an hour, and the network
	@$(BIN)/pytest -p tests.conftest rigs/toolchains $(if $(SOURCE),--source '$(SOURCE)')

templates: $(VENV)/.run  ## what relay fleet template and relay init --ci print, under the linters of those who read it; needs the registries
	@sh .ci/templates

report-browser: $(VENV)/.dev  ## the page of relay report in headless Chromium, as a desktop and as a telephone, in light and dark
	@$(BIN)/python -c 'import axe_playwright_python' 2>/dev/null || $(BIN)/python -m pip install -qq --disable-pip-version-check --no-input axe-playwright-python
	$(BIN)/python -m tests.report.browser

compare-kit: $(VENV)/.run  ## the tasks of examples/compare: references pass the held-out tests, wrong solutions fail; no model
	@$(BIN)/python examples/compare/kit.py check

pictures: $(VENV)/.dev  ## draw the pictures of README and docs/ anew, from a demo; needs Chromium
	@$(BIN)/python -c 'import axe_playwright_python, PIL' 2>/dev/null || $(BIN)/python -m pip install -qq --disable-pip-version-check --no-input axe-playwright-python pillow
	@$(BIN)/python -m rigs.pictures

fuzz: $(VENV)/.dev  ## fuzz one target for a while: make fuzz TARGET=plan SECONDS=300; fuzz/targets.py names them
	@$(BIN)/python -c 'import atheris' 2>/dev/null || $(BIN)/python -m pip install -qq --disable-pip-version-check --no-input --editable '.[fuzz]'
	nice -n 10 $(BIN)/python -m fuzz $(TARGET) --seconds $(SECONDS)

$(VENV)/.venv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "relay needs Python 3.11 or newer; found $$($(PYTHON) --version). Name another: make PYTHON=python3.12"; exit 1; }
	@echo "making $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@touch $@

# --compile: the first import of the SDK without compiled files takes seconds.
$(VENV)/.run: $(VENV)/.venv pyproject.toml
	@echo "installing relay"
	@$(BIN)/python -m pip install --disable-pip-version-check --no-input --compile --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.venv pyproject.toml
	@echo "installing relay and its tools: minutes, most of them behind the last line of pip's"
	@$(BIN)/python -m pip install --disable-pip-version-check --no-input --compile --editable '.[dev]'
	@touch $@ $(VENV)/.run

docs: $(VENV)/.dev  ## write docs/reference/settings.md, docs/reference/events.md, docs/reference/json.md and share/ anew
	@$(BIN)/python -m tests.settings.reference > docs/reference/settings.md
	@$(BIN)/python -m tests.sessions.reference > docs/reference/events.md
	@$(BIN)/python -m tests.cli.reference > docs/reference/json.md
	@$(BIN)/python -m tests.cli.manual

site: $(VENV)/.dev  ## build the documentation into build/site; every warning is an error
	@$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going --fresh-env --builder html docs build/site
	@echo "build/site/index.html"

package:  ## build wheel and sdist into dist/, check them, and play the demo and whole commands on the wheel in a fresh home
	@.ci/package

audit: $(VENV)/.venv constraints.txt  ## look the versions of constraints.txt up in the advisories; needs the network
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --no-input pip-audit
	$(BIN)/pip-audit --strict --disable-pip --require-hashes --requirement constraints.txt

sandbox:  ## install bubblewrap where this user may; say how where not
	@sh .ci/sandbox

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
