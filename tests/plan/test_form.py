"""What a formatter may do to a plan, and what it may not."""

import pytest

from relay.plan.meaning import is_reformatted
from relay.plan.parse import parse_plan

PLAN = """\
---
relay: {max_sessions: 3}
---
# Keys

Some *prose*.

## Phase 1 — Schema
Verify: `pytest -q`, `ruff check .`
* [ ] Add the `api_keys` table — db/schema.py
* [x] Migrate — db/migrations/

## Phase 2 — Routes
After: 1
Runner: claude-code
Model: a-model
Tools: web-docs
**Files:**
- `src/a-b.py`

* [ ] Serve — app/web.py

## Phase 3 — Pages
After: 1
* [ ] Say so — docs/keys.md
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("* [", "- ["),
        ("*prose*", "_prose_"),
        ("\n", "\r\n"),
        ("# Keys\n", "# Keys  \n\n\n"),
        ("`\n* [", "`\n\n* ["),
        ("* [ ] Say so — docs/keys.md\n", "* [ ] Say so — docs/keys.md"),
    ],
)
def test_the_form_is_free(old, new):
    assert is_reformatted(parse_plan(PLAN), parse_plan(PLAN.replace(old, new)))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("prose", "pose"),
        ("Migrate", "migrate"),
        ("`pytest -q`", "`pytest  -q`"),
        ("`ruff check .`", "`ruff check ..`"),
        ("`ruff check .`", "`ruff check .`, `:`"),
        ("[ ] Add", "[x] Add"),
        ("[x] Migrate", "[ ] Migrate"),
        ("db/schema.py", "db/schema..py"),
        ("src/a-b.py", "src/a_b.py"),
        ("claude-code", "claude_code"),
        ("a-model", "a_model"),
        ("After: 1", "After: _1_"),
        ("web-docs", "web_docs"),
        ("[ ] Serve", "[ ]* Serve"),
        ("* [x] Migrate", "  * [x] Migrate"),
        ("max_sessions: 3", 'max_sessions: "3"'),
        ("## Phase 2", "### Phase 2"),
    ],
)
def test_what_it_asks_for_is_not(old, new):
    """Who may format it, as a commit hook, must not be able to change a command by its quotes or blanks."""
    changed = PLAN.replace(old, new)
    assert changed != PLAN
    assert not is_reformatted(parse_plan(PLAN), parse_plan(changed))
