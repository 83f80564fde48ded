"""A plan's text below its Markdown blocks: bytes, file names, lines, front matter, and the parts of one line.

A byte that is not UTF-8 becomes a lone surrogate, and that byte again on the way back; a byte-order mark and line
endings stay in the text. So reading and writing a file changes nothing in it.

Lines are those that CommonMark counts. ``str.splitlines`` also splits at form feeds, ``U+0085``, ``U+2028`` and more;
such a character in an item would put every later offset on the wrong line.

Every function on a line is linear in its length: a plan may hold a line of a megabyte.

Of the front matter, the YAML block at the top, only the ``relay`` mapping is kept. Aliases, tags and depth are refused
before anything is built, against alias bombs and deep recursion. Other tools keep keys of their own there; these are
left alone, and need not be YAML.
"""

import re
from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field, replace
from pathlib import PurePosixPath
from typing import Any, Self

from relay.base.documents import YamlLimits, YamlTextError, compose, construct
from relay.base.errors import PlanError
from relay.base.places import is_outside
from relay.base.values import dataclass

MAX_PLAN_BYTES = 8 * 1024 * 1024
UTF_16 = (b"\xff\xfe", b"\xfe\xff")


def require_utf8(data: bytes) -> str:
    """Return the text of a plan's bytes.

    Raises:
        PlanError: A byte is not UTF-8, or there are too many; the line is known, the path is not.
    """
    if len(data) > MAX_PLAN_BYTES:
        raise PlanError(f"this is larger than {MAX_PLAN_BYTES:,} bytes")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        hint = "this is UTF-16, as PowerShell writes it: save it as UTF-8" if data.startswith(UTF_16) else ""
        raise PlanError("this byte is not UTF-8; allowed: UTF-8 text", line=line, hint=hint) from None


def decode_text(data: bytes) -> str:
    """Return the text of a plan's or a ledger's bytes, whatever they are; different bytes have different texts."""
    return data.decode("utf-8", "surrogateescape")


def encode_text(text: str) -> bytes:
    """Undo `decode_text`."""
    return text.encode("utf-8", "surrogateescape")


DEFAULT_PLAN = "PLAN.md"
"""The plan where no setting names another."""
LEDGER_SUFFIX = ".ledger.yaml"
STATE_DIR = ".relay"
"""Holds telemetry and spilled output, never state that matters."""
OUTPUTS = f"{STATE_DIR}/outputs"
"""Has the full text of long outputs, which a session reads by these paths, and what gates leave."""


def find_ledger_path(plan_path: str) -> str:
    """Return the ledger's path, next to the plan: ``PLAN.md`` → ``PLAN.ledger.yaml``."""
    path = PurePosixPath(plan_path)
    return str(path.with_name(f"{path.stem}{LEDGER_SUFFIX}"))


def find_plan_folder(plan_path: str) -> str:
    """Return a plan's directory from the root; empty at the root, and for a plan outside of the repository."""
    folder = str(PurePosixPath(plan_path).parent)
    return "" if folder == "." or folder.startswith("/") or is_outside(plan_path) else folder


def find_protected(plan_path: str) -> tuple[str, ...]:
    """Return the paths that no tool and no command may write, besides git's own directory and the rules files."""
    own = () if is_outside(plan_path) else (plan_path, find_ledger_path(plan_path))
    return (*own, STATE_DIR, "relay.toml")


def describe_outside(folder: str) -> str:
    """Return why no command may run in a directory that a plan names (`In:`); empty if one may."""
    parts = folder.split("/")
    if folder.isprintable() and folder[0] not in "/~" and not {"..", ".git", STATE_DIR}.intersection(parts):
        return ""
    shown = "".join(char if char.isprintable() else "?" for char in folder[:60])
    allowed = "a directory of this repository, from its root, as in `In: packages/api`; `In: .` is the root"
    return f"`In: {shown}` names no place for verify commands; allowed is {allowed}"


BOM = "\ufeff"
_LINE_END = re.compile(r"\r\n|\r|\n")
_BLANK = re.compile(r"[ \t]*\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """A text cut at line feeds, carriage returns and pairs of them; line indexes are 0-based here."""

    text: str
    starts: tuple[int, ...]
    """Offset of each line; a byte-order mark stands before the first. One more entry: the text's length."""

    @classmethod
    def of(cls, text: str) -> Self:
        """Cut a text, without changing it."""
        first = len(BOM) if text.startswith(BOM) else 0
        starts = [first, *(end.end() for end in _LINE_END.finditer(text))]
        if starts[-1] < len(text):
            starts.append(len(text))
        return cls(text=text, starts=tuple(starts) if len(starts) > 1 else (first, first))

    @property
    def count(self) -> int:
        """Number of lines; an empty text has one empty line."""
        return len(self.starts) - 1

    def at(self, index: int) -> str:
        """Return one line without its ending."""
        return self.text[self.starts[index] : self.starts[index + 1]].rstrip("\r\n")

    def ending(self, index: int) -> str:
        """Return the ending of one line; empty if the text ends without one."""
        line = self.text[self.starts[index] : self.starts[index + 1]]
        return line[len(line.rstrip("\r\n")) :]

    def offset(self, index: int) -> int:
        """Return where a line starts; past the last line, the end of the text."""
        return self.starts[min(index, self.count)]

    def find_ending(self, near: int) -> str:
        """Return the line ending in use at a line, else at the first line, else a line feed."""
        return self.ending(min(near, self.count) - 1) or self.ending(0) or "\n"

    def insert(self, *added: tuple[int, Sequence[str]]) -> str:
        """Return the text with lines inserted before the given ones, which are in order; the rest stays as it is."""
        pieces, done = list[str](), 0
        for at, lines in added:
            ending, offset = self.find_ending(at), self.offset(at)
            missing = "" if not at or self.ending(at - 1) else ending
            pieces += [self.text[done:offset], missing, *(f"{line}{ending}" for line in lines)]
            done = offset
        return "".join((*pieces, self.text[done:]))

    def index_at(self, offset: int) -> int:
        """Return the line that holds an offset."""
        return min(max(bisect_right(self.starts, offset) - 1, 0), self.count - 1)

    def put(self, offsets: Collection[int], character: str) -> Self:
        """Return the lines with `character` at each offset; none of them is at a line end."""
        ends = (*sorted(offsets), len(self.text))
        starts = (0, *(offset + 1 for offset in ends[:-1]))
        text = character.join(self.text[start:end] for start, end in zip(starts, ends, strict=True))
        return replace(self, text=text)

    def is_blank(self, index: int) -> bool:
        """Whether a line holds only spaces and tabs, as CommonMark sees it."""
        return _BLANK.match(self.at(index)) is not None


_TICKS = re.compile(r"(\\*)(`+)")
_MARKUP = re.compile(
    r"\\(?P<escaped>[!-/:-@\[-`{-~])"
    r"|<!--[^<]*?-->"  # comment
    r"|!?\[(?P<link>[^\[\]]*)\]\([^()\s]*\)"  # link or image
    r"|(?<![\s*])\*++|(?<!\*)\*++(?!\s)|~~"  # emphasis and strike-through; a star between blanks is a star
    r"|(?<!\w)_++(?=\w)|(?<=[^\W_])_++(?!\w)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeSpan:
    """One code span; offsets include the backticks."""

    start: int
    end: int
    content: str
    """Without the one blank that may pad each side."""


def find_code_spans(text: str) -> tuple[CodeSpan, ...]:
    """Return the code spans of a line: backtick runs of equal length pair up, as in CommonMark."""
    runs = [(found.start(2), found.end(), len(found[1]) % 2) for found in _TICKS.finditer(text)]
    closes, next_of_length = [0] * len(runs), dict[int, int]()
    for at in reversed(range(len(runs))):
        start, end, _ = runs[at]
        closes[at] = next_of_length.get(end - start, 0)
        next_of_length[end - start] = at
    spans, done = list[CodeSpan](), 0
    for at, (start, end, is_escaped) in enumerate(runs):
        if at < done or is_escaped or not closes[at]:
            continue
        done = closes[at] + 1
        close, stop, _ = runs[closes[at]]
        content = text[end:close]
        if content.startswith(" ") and content.endswith(" ") and content.strip(" "):
            content = content[1:-1]
        spans.append(CodeSpan(start=start, end=stop, content=content))
    return tuple(spans)


def render_plain(text: str) -> str:
    """Return a heading's words without their markup, on one line."""
    plain, done = "", 0
    for span in find_code_spans(text):
        plain += f"{_MARKUP.sub(_UNMARKED, text[done : span.start])}{span.content}"
        done = span.end
    return " ".join(f"{plain}{_MARKUP.sub(_UNMARKED, text[done:])}".split())


_UNMARKED = r"\g<escaped>\g<link>"
_NUMBER = r"\d{1,9}(?:\.\d{1,9})*[a-z]?"
_WORK = "phase|task|step|iteration"
_PARTS = f"{_WORK}|milestone|stage|part|sprint|wave"
_NUMBERED = re.compile(
    rf"(?:\W*(?:{_PARTS})\s+\#?(?P<word>{_NUMBER})(?=$|[\s—–:.)]|-(?!\d))"
    rf"|(?P<bare>{_NUMBER})(?=[.):](?:\s|$)|\s+[—–-](?:\s|$))"
    r"|(?P<dotted>\d{1,9}(?:\.\d{1,9})+)(?=\s))"
    r"\s*[—–:.)-]{0,3}\s*",
    re.IGNORECASE,
)
_PRINTED = re.compile(
    r"[*_(\[{\#§]*+(?:"
    r"(?:(?:phase|sub-?task|task|step|item|story|section|milestone|stage|part|feature|requirement)\s+\#?)?"
    r"(?P<dotted>\d{1,9}(?:\.\d{1,9})+[a-z]?)(?=[.):\]}*_,;—–-]*+(?:\s|$))"
    r"|(?P<whole>\d{1,9}[a-z]?)(?=[.):][*_]*+(?:\s|$)))",
    re.IGNORECASE,
)
_UNIT = re.compile(rf"\W*(?:{_WORK})\s+\#?{_NUMBER}(?=$|[\s—–:.)]|-(?!\d))", re.IGNORECASE)
_UNIT_NUMBER = re.compile(rf"\b(?:{_WORK})\s+\#?({_NUMBER})", re.IGNORECASE)
_ENUMERATED = re.compile(
    rf"\W*(?:(?:[a-z]+\s+){{0,2}}\#?\d|(?:{_PARTS})\s+[a-z]\b|[a-z]{{1,4}}-?\d+(?:\.\d+)*\s*[:.)—–-]|[a-z][.):]\s)",
    re.IGNORECASE,
)
_CONDITION = re.compile(
    r"\W*(?:(?:overall|final|global|project|feature|general|key|measurable|plan)\s+)?"
    r"(?:(?:success|acceptance|completion|exit|done|quality)\s+(?:criteri(?:a|on)|conditions?|gates?|checks?|checklist)"
    r"|definition\s+of\s+(?:done|ready)|done\s+when|dod"
    r"|(?:(?:plan|spec)\s+)?self[- ]?(?:review|check)(?:\s+checklist)?|constitution\s+check"
    r"|(?:final\s+)?(?:verification|validation|review|sign-?off|pre-?(?:merge|commit|flight))\s+checklist"
    r"|验收标准|成功标准|完成标准|完成定义|验证清单|自检清单|自查清单)"
    r"\s*(?:[:：(（—–-].*)?",
    re.IGNORECASE,
)


def is_unit(plain: str) -> bool:
    """Whether a heading names one numbered piece of work: ``Phase 2: Keys``, ``Task 2.1``."""
    return _UNIT.match(plain) is not None


def find_unit_numbers(plain: str) -> tuple[str, ...]:
    """Return the numbers of the pieces of work that a text names: ``2`` and ``3`` of ``Task 2, then step 3``."""
    return tuple(_UNIT_NUMBER.findall(plain))


def is_enumerated(plain: str) -> bool:
    """Whether a heading is numbered: ``1.2 Keys``, ``Week 3``, ``T4: Keys``, ``User Story 1``."""
    return _ENUMERATED.match(plain) is not None


def is_condition(plain: str) -> bool:
    """Whether a heading announces conditions for the end: ``Success criteria``, ``Definition of Done``.

    A numbered one (``Phase 7: Acceptance criteria``) is work.
    """
    return _CONDITION.fullmatch(plain) is not None


_CODE_SPAN = re.compile(r"`[^`]*`")
_FOR_PERSON = re.compile(
    r"\((?:manual|manually|human)\)|(?<![\w\[])\[(?:M|manual|human)\](?![\w\[(])|(?<![\w@.])@me(?![\w@])"
    r"|\buser[ -]+manual[ -]+(?:verification|testing|check)\b"
    r"|^[\W\d]*manual[ -]+(?:verification|testing|test|check|review|step|qa)\s*(?:$|[:(—–-])",
    re.IGNORECASE,
)
"""Sources: conductor's "User Manual Verification", OpenSpec's "(manual)", "[M]" and "@me" of users of several tools."""


def is_for_person(text: str, marks: Sequence[str] = ()) -> bool:
    """Return whether an item's text marks it as work for a person; ``Document the manual check`` does not.

    Args:
        marks: Further texts that do, whatever their case, as the plan's front matter lists them.
    """
    said = _CODE_SPAN.sub("", text)
    return _FOR_PERSON.search(said) is not None or any(mark.casefold() in said.casefold() for mark in marks)


def fold_number(number: str) -> str:
    """Return a number for comparison: ``01.2A`` is ``1.2a``."""
    return ".".join(part.lstrip("0") or "0" for part in number.casefold().split("."))


def find_printed_number(text: str) -> str:
    """Return the number that an item begins with, such as ``1.2`` of ``Task 1.2: Keys``; empty without one."""
    found = _PRINTED.match(text)
    return (found["dotted"] or found["whole"]) if found else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbered:
    """The number and the title in a heading."""

    number: str
    """``1``, ``2a``, ``2.1``; empty without one."""
    title: str


def parse_number(plain: str) -> Numbered:
    """Split ``Phase 2a — Keys`` into number and title; a title that is only a number is kept whole."""
    found = _NUMBERED.match(plain)
    if not found:
        return Numbered(number="", title=plain)
    number = found["word"] or found["bare"] or found["dotted"]
    return Numbered(number=number, title=plain[found.end() :] or plain)


MAX_CHARS = 64 * 1024
_LIMITS = YamlLimits(chars=MAX_CHARS, depth=50, is_pure=True)
_FENCE = re.compile(r"---[ \t]*")
_KEY = re.compile(r"[A-Za-z_][\w.-]*[ \t]*:(?=[ \t]|$)")
_RELAY = re.compile(r"\s*(?:\{(?:.*[\s{,])?)?[\"']?relay[\"']?[ \t]*:")
_MARKDOWN = re.compile(r"#{1,6}[ \t]|[ \t>]*(?:[-*+]|\d{1,9}[.)])[ \t]+\[[ xX]\][ \t]")


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontMatter:
    """The content of the block, and where Markdown begins."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    verify: tuple[str, ...] = ()
    manual: tuple[str, ...] = ()
    """Texts that mark an item as work for a person, besides those that relay knows."""
    folder: str = ""
    """The directory of the verify commands of all phases; empty without one."""
    body: int = 0
    """0-based index of the first line that is Markdown."""


def parse_front_matter(lines: Lines) -> FrontMatter:
    """Read the front matter; a text without any gives an empty value.

    Raises:
        PlanError: It has a ``relay`` key, and is not closed, too long or not YAML, or that mapping is not usable.
    """
    if lines.count == 1 or not _FENCE.fullmatch(lines.at(0)):
        return FrontMatter()
    last = min(lines.index_at(lines.starts[0] + MAX_CHARS) + 1, lines.count)
    close = next((index for index in range(1, last) if _FENCE.fullmatch(lines.at(index))), 0)
    is_ours = any(_RELAY.match(lines.at(index)) for index in range(1, close or last))
    has_key = _KEY.match(lines.at(1)) is not None
    if not close and is_ours and has_key:
        raise _refusal(1, f"that starts here is not closed by a line `---` within {MAX_CHARS // 1024} KiB")
    if not close:
        return FrontMatter()
    start = lines.starts[1]
    try:
        document = _load(lines, start, lines.starts[close])
    except YamlTextError as error:
        if is_ours:
            line = 2 if error.offset is None else lines.index_at(start + error.offset) + 1
            raise _refusal(line, str(error)) from None
        # Front matter of another tool, or Markdown between two thematic breaks.
        is_markdown = any(_MARKDOWN.match(lines.at(index)) for index in range(1, close))
        return FrontMatter(body=close + 1 if has_key and not is_markdown else 0)
    if not isinstance(document, dict | None):
        return FrontMatter()
    settings = (document or {}).get("relay")
    settings = {} if settings is None else settings
    line = _find_key(lines, close, "relay") or 1
    if not isinstance(settings, dict):
        raise _refusal(line, f"has `relay: {settings!r}`; `relay` must be a mapping such as `relay: {{model: …}}`")
    if wrong := [key for key in settings if not isinstance(key, str)]:
        raise _refusal(line, f"has the key {wrong[0]!r} under `relay`; keys must be words (quote `on`, `yes`, `no`)")
    said = {}
    for key, words in (("verify", 'commands such as ["pytest -q"]'), ("manual", 'texts such as ["@qa", "(by hand)"]')):
        found = settings.get(key)
        texts = [found] if isinstance(found, str) else [] if found is None else found
        if not isinstance(texts, list) or not all(isinstance(one, str) and one.strip() for one in texts):
            line = _find_key(lines, close, key) or 1
            raise _refusal(line, f"has a `{key}` that is not a list of {words} (quote each one)")
        said[key] = tuple(one.strip() for one in texts)
    folder = settings.get("in", ".")
    if words := describe_outside(folder) if isinstance(folder, str) and folder else "`in` must be a directory":
        raise PlanError(words, line=_find_key(lines, close, "in") or 1)
    rest = {key: value for key, value in settings.items() if key not in {"manual", "in"}}  # the plan's, no settings
    return FrontMatter(settings=rest, **said, folder=folder if "in" in settings else "", body=close + 1)


def find_setting_line(front: FrontMatter, lines: Lines, key: str) -> int:
    """Return the 1-based line of a key of the front matter; its first line if a plain search does not find the key."""
    return _find_key(lines, front.body - 1, key) or 1


def _find_key(lines: Lines, stop: int, key: str) -> int:
    pattern = re.compile(rf"(?:.*[\s{{,])?[\"']?{re.escape(key)}[\"']?[ \t]*:")
    return next((index + 1 for index in range(1, stop) if pattern.match(lines.at(index))), 0)


def _load(lines: Lines, start: int, stop: int) -> Any:
    """Return the YAML value; a key that stands twice in it or under ``relay`` is refused: YAML would drop the first."""
    import yaml

    node = compose(lines.text[start:stop], _LIMITS)
    pairs = node.value if isinstance(node, yaml.MappingNode) else ()
    named = (value for key, value in pairs if key.value == "relay" and isinstance(value, yaml.MappingNode))
    ours = [pair for value in named for pair in value.value]
    for level in (pairs, ours):
        seen = set[str]()
        for key, _ in level:
            if str(key.value) in seen:
                raise YamlTextError(f"has the key `{key.value}` twice", offset=key.start_mark.index)
            seen.add(str(key.value))
    return construct(node) if node else None


def _refusal(line: int, what: str) -> PlanError:
    hint = "if this is a thematic break and not front matter, put a blank line above it"
    return PlanError(f"the front matter {' '.join(what.split())}", line=line, hint=hint)
