"""Three phases, the third behind the others, and sessions that do them."""

PLAN = """\
# Field

## Phase 1 — One
After: none
Verify: `test -s one.txt`
- [ ] Write one.txt

## Phase 2 — Two
After: none
Verify: `test -s two.txt`
- [ ] Write two.txt

## Phase 3 — Three
After: 1, 2
Verify: `test -s three.txt`
- [ ] Write three.txt
"""
PAIR = PLAN.partition("\n## Phase 3")[0].rstrip() + "\n"
"""Two of them, for what says nothing about a third."""
ALONE = PLAN.partition("\n## Phase 2")[0].rstrip() + "\n"
WORDS = ("one", "two", "three")


def write_session(word, number, first=""):
    own = f"{{tools: [{{name: write, input: {{path: {word}.txt, content: '{word}'}}}}]}}"
    tick = f"{{tools: [{{name: tick, input: {{item: '{number}.1', evidence: seen}}}}]}}"
    return (
        f"- {{when: {{first_message_contains: 'Write {word}.txt'}}, turns: [{first or own}, {tick}, {{text: 'x'}}]}}\n"
    )


SCRIPT = "sessions:\n" + "".join(write_session(word, number) for number, word in enumerate(WORDS, 1))
