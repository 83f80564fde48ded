"""Parses a verify command to tell whether its exit code means something, and warns before it costs money. Pure."""

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise

from relay.base.values import dataclass
from relay.base.words import shorten
from relay.plan.model import Plan, Violation
from relay.plan.paths import split_place
from relay.plan.statements import read_statements, read_validation_commands

_CERTAIN = re.compile(
    r"(?:true|:|exit 0|return 0|wait|(?:echo|printf|cat|tail|head|sleep|date)(?:\s.*)?)(?:\s*\d?>.*)?", re.DOTALL
)
"""Commands that succeed whatever happened before; `wait` does if it names no job."""
_ECHOING = re.compile(r"(?:true|:|exit 0|return 0|wait|(?:echo|printf|sleep)(?:\s.*)?)(?:\s*\d?>.*)?", re.DOTALL)
"""Those of them that need no file either."""
_REPORTING = re.compile(
    r"(?:ls|less|more|tee|touch|mkdir|rm|env|pwd|wc|sort|git (?:status|diff|log|show))(?:\s.*)?", re.DOTALL
)
"""Commands that may fail, and say nothing of the one that failed before them."""
_BARE = re.compile(r"(?:ls|pwd|env|date|id|uname|whoami|git (?:status|log|branch))(?:\s+-[\w-]+)*")
"""Commands that only show something: without an operand they succeed in any repository."""
_NESTED = re.compile(r"(?:(?:ba|da|z|k)?sh(?: -\w+)*? -\w*c|eval) (['\"])(.*)\1", re.DOTALL)
_IF_PRESENT = re.compile(r"--if-present\b")
_COLLECTING = re.compile(r"(?:^|\s)(?:py\.?test)\b.*\s(?:--collect-only|--co)(?:\s|$)")
_TESTING = re.compile(
    r"(?<!la)test|spec(?![a-z])|(?<![\w-])(?:tox|nox|mocha|jest|ava|tap|karma|cypress|playwright|behave|busted|prove|bats"
    r"|(?:make|just|task|gradlew?|mvnw?) [^;|&]*\b(?:check|verify))(?![\w-])",
    re.IGNORECASE,
)
_LOOKING = re.compile(
    r"(?:^|[\s/])(?:ruff|flake8|pylint|mypy|pyright|ty|black|isort|bandit|codespell|eslint|prettier|tsc|biome|oxlint"
    r"|stylelint|markdownlint\S*|clippy|rustfmt|gofmt|golangci-lint|staticcheck|rubocop|phpstan|shellcheck|yamllint"
    r"|hadolint|go vet|cargo fmt|git|e?grep|rg|find|ls|cat|diff|\[)(?=\s|$)|^(?:! )?test\s"
)
"""Programs that read files and run none of them, whatever the files' names."""
_MOST_NESTED = 5
"""Groups in groups are parsed to this depth; no one writes more."""

_PREPARING = re.compile(r"(?:cd|export|set|source|\.|unset|umask|ulimit|mkdir|rm|[A-Za-z_]\w*=\S*)(?:\s|$)")
_STOPS_AT_FAILURE = re.compile(r"set\s+-[a-z]*e")
_TOKEN = re.compile(
    r"""[^\\'"`(){}\#|&;\n]+ | \\. | '[^']*'? | "(?:\\.|[^"\\])*"? | `(?:\\.|[^`\\])*`?
    | (?P<comment> (?<!\S)\#[^\n]* )
    | (?P<begin> \( | (?<![^ \t\n;&|(])\{(?=[ \t\n]) )
    | (?P<end> \) | (?<=[ \t\n;&])\}(?![^ \t\n;&|)]) )
    | (?P<operator> \|\| | && | \|&? | ;;? | (?<![<>])&(?!>) | \n )
    | .""",
    re.DOTALL | re.VERBOSE,
)
"""A step through a command: plain or quoted text, a comment, a bound of a group, an operator. A brace counts only as a
word of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Segment:
    """A command of a list, and the operator in front of it (empty for the first)."""

    operator: str
    text: str


def check_command(command: str) -> str | None:
    """Return why a verify command proves less than it seems to; None if it does not."""
    parts = _split(command)
    if not parts:
        return "is empty: it checks nothing"
    if parts[-1].text == "":
        return "runs in the background: its exit code is not seen; remove the &"
    if _COLLECTING.search(command):
        return "only lists tests: --collect-only runs none of them; remove it"
    if _IF_PRESENT.search(command) and not re.search(r"\s(?:-ws|--workspaces|-r|--recursive)\b", command):
        return "passes when there is no such script: remove --if-present"
    last, before = parts[-1], parts[:-1]
    if swallows_exit(command):
        return f"always succeeds: `{last.operator.strip() or ';'} {last.text}` throws the exit code away; remove it"
    if proves_nothing(command) or (not before and _CERTAIN.fullmatch(last.text)):
        return "always succeeds: it checks nothing"
    return _check_sequence(parts)


def proves_nothing(command: str) -> bool:
    """Return whether a gate of this command is green whatever the work is: it cannot show that a phase is done."""
    parts = _split(command)
    if all(_ECHOING.fullmatch(part.text) or _BARE.fullmatch(part.text) for part in parts):
        return True
    return swallows_exit(command)


def swallows_exit(command: str, _nested: int = 0) -> bool:
    """Return whether the command exits 0 even when the part that matters fails."""
    parts = _split(command)
    if not parts or _nested > _MOST_NESTED:
        return False
    last = parts[-1]
    if len(parts) == 1:
        inner = _find_inner(last.text)
        return inner is not None and swallows_exit(inner, _nested + 1)
    if last.text == "":
        return True
    sequence = last.operator in {";", "\n", "&"}
    if sequence and any(_STOPS_AT_FAILURE.match(part.text) for part in parts):
        return False
    if sequence and all(_PREPARING.match(part.text) for part in parts[:-1]):
        inner = _find_inner(last.text)
        return inner is not None and swallows_exit(inner, _nested + 1)
    if last.operator == "||" and _REPORTING.fullmatch(last.text):
        return True
    return (sequence or last.operator == "||") and _always_succeeds(last.text)


def list_tests(command: str) -> tuple[str, ...]:
    """Return the parts of the command that have the name of a test runner or test."""
    texts = (part.text for part in _split(command))
    return tuple(text for text in texts if _TESTING.search(text) and not _LOOKING.search(text))


def may_run_nothing(command: str) -> bool:
    """Return whether the command exits 0 without output if it finds nothing to run."""
    return _IF_PRESENT.search(command) is not None


def _always_succeeds(text: str, nested: int = 0) -> bool:
    """Return whether one command, or a group of commands, exits 0 whatever happens."""
    inner = _find_inner(text)
    if inner is None or nested > _MOST_NESTED:
        return _CERTAIN.fullmatch(text) is not None
    parts = _split(inner)
    if not parts:
        return False
    if any(part.operator == "&&" for part in parts):
        return all(_always_succeeds(part.text, nested + 1) for part in parts)
    return _always_succeeds(parts[-1].text, nested + 1)


def _find_inner(text: str) -> str | None:
    """Return the text of a group, or of a nested shell command; None for anything else."""
    if text.startswith("(") and text.endswith(")"):
        return text[1:-1]
    if text.startswith("{") and text.endswith("}"):
        return text[1:-1].strip().removesuffix(";")
    nested = _NESTED.fullmatch(text)
    return nested[2] if nested else None


def _check_sequence(parts: list[_Segment]) -> str | None:
    if any(_STOPS_AT_FAILURE.match(part.text) for part in parts):
        return None
    for part, following in pairwise(parts):
        harmless = _PREPARING.match(part.text) or _CERTAIN.fullmatch(part.text)
        if following.operator in {";", "\n"} and not harmless:
            return f"goes on when `{part.text[:60]}` fails; join the commands with &&"
    return None


def _split(command: str) -> list[_Segment]:
    """Split at operators outside quotes and groups, without comments; an empty last part follows a final ``&``.

    That a command goes to a directory first says nothing about what it checks, and is left out.
    """
    command = split_place(command)[1].strip()
    parts, operator, text, depth = list[_Segment](), "", "", 0
    for token in _TOKEN.finditer(command):
        kind = token.lastgroup
        depth = max(depth + (kind == "begin") - (kind == "end"), 0)
        if kind == "operator" and depth == 0:
            parts.append(_Segment(operator=operator, text=text.strip()))
            operator, text = token[0], ""
        elif kind != "comment":
            text += token[0]
    parts.append(_Segment(operator=operator, text=text.strip()))
    return [part for part in parts if part.text or (part is parts[-1] and part.operator == "&")]


_SHOWN_CHARS = 60


def check_gates(plan: Plan) -> Iterator[Violation]:
    """Yield why a gate proves less than it seems to, each command of the open phases once, in their order.

    A command that can show nothing is an error, and a run refuses it; one that only weakens the gate is a warning.
    """
    lines = find_lines(plan)
    gates = (command for phase in plan.phases if not phase.done for command in phase.verify)
    for command in dict.fromkeys(gates):
        if words := check_command(command):
            message = f"the verify command `{shorten(command, _SHOWN_CHARS)}` {words}"
            yield Violation(line=lines.get(command, 1), message=message, warning=not proves_nothing(command))


def find_lines(plan: Plan) -> Mapping[str, int]:
    """Return the first line of each command; commands of the front matter are left out."""
    found: dict[str, int] = {}
    for section in plan.outline.sections:
        for one in read_statements(section):
            named = one.values if one.word == "verify" else ()
            found |= {command: one.line for command in named if command not in found}
        found |= {command: section.line for command in read_validation_commands(section) if command not in found}
    return found
