"""Find paths, and the lines that relay acts on: ``Verify:``, ``After:``, ``Model:``, ralphex's `Validation Commands`.

An item names a path in three ways: a code span that looks like a path, the tail after `` — ``, and a bare word with a
slash and an extension (spec-kit's ``in src/x.py``). Paths that leave the repository are never returned.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import takewhile
from operator import itemgetter
from pathlib import PurePosixPath

from relay.base.values import dataclass
from relay.plan.outline import Entry, EntryKind, Section
from relay.plan.text import CodeSpan, find_code_spans

_KNOWN_EXTENSIONS = """
    adoc asm astro awk bash bat bazel bib bzl c cc cfg cjs clj cljs cmake cmd conf config cpp cs csproj
    css csv cts cu cxx d dart db diff dockerfile ejs el elm env erb erl ex exs f90 fish fs fsx gemspec
    go gql gradle graphql groovy h haml hbs hcl hh hpp hrl hs htm html http hxx ico ini ipynb j2 jade
    java jinja jinja2 jl jpg js json json5 jsonc jsonl jsx kt kts less liquid lisp lock log lua m m4 mak
    makefile md mdc mdx mjs mk ml mli mm mod mts mustache nim nix odin org patch pdf php pl plist pm png
    po prisma properties proto ps1 pug pxd py pyi pyx r rake rb rego rkt rs rst sass sbt scala scm scss
    sh sln sol sql sqlite styl sum sv svelte svg swift tcl tex tf tfvars thrift tmpl toml tpl ts tsv tsx
    twig txt typ v vb vhd vim vue wasm wat xml xsd xsl yaml yml zig zsh
"""
_KNOWN_NAMES = """
    .babelrc .dockerignore .editorconfig .env .envrc .eslintrc .gitattributes .gitignore .gitmodules
    .npmrc .nvmrc .prettierrc BUILD Brewfile CHANGELOG CODEOWNERS Caddyfile Containerfile Dockerfile
    GNUmakefile Gemfile Jenkinsfile Justfile LICENSE Makefile NOTICE Pipfile Procfile README Rakefile
    Tiltfile Vagrantfile WORKSPACE justfile makefile
"""
_EXTENSIONS = frozenset(_KNOWN_EXTENSIONS.split())
_NAMES = frozenset(_KNOWN_NAMES.split())
_WORD = re.compile(r"[^\s\x00-\x1f\x7f`\"'<>|;&$\\?!=,\ufffd]+")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_REMOTE = re.compile(r"(?:origin|upstream|refs|heads|remotes)/|@[\w~-]*/|[\w.-]+/[\w.-]+#\d+")
"""A branch, a package or an alias of a bundler, an issue of a forge: it has a slash and is no path."""
_SYSTEM = re.compile(r"/(?:boot|dev|etc|home|mnt|opt|proc|root|sys|tmp|usr|var|Users|Volumes|private)(?:/|$)")
_LINE_SUFFIX = re.compile(r":\d+(?:-\d+|:\d+)?$")
_EXTENSION = re.compile(r"[A-Za-z][A-Za-z0-9]{0,9}")
_HERE = re.compile(r"\A(?:\./+)+")
_BARE = re.compile(r"(?<![^\s`])[^\s`/]*+/[^\s`]*+")
_DASH = re.compile(r"[ \t\n](?:—|–|--?)[ \t\n]")
_PIECE = re.compile(r"[^,;]+")
_OPERAND = re.compile(r"[^\s;&|<>()'\"`=]+")
_OUTPUT = re.compile(r"\d?>>?\s*[^\s;&|]+")
_MODULE = re.compile(r"(?<![\w./-])[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+(?![\w./-])")
_AND = re.compile(r"[ \t\n](?:and|&|\+)[ \t\n]")
_REMARK = re.compile(r"\([^()]*\)\.?$")


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedPaths:
    """The paths of one item, in order."""

    named: tuple[str, ...]
    targets: tuple[str, ...]
    """The `named` paths in the tail, which the item makes or changes. The others may be there to be read."""
    refused: tuple[str, ...]
    """Paths that are absolute or climb out with ``..``; relay works inside the repository only."""
    symbols: tuple[str, ...] = ()
    """Code spans that are a name of the code: ``load_key``, ``Store.load``, without a call's brackets."""


_SYMBOL = re.compile(r"([A-Za-z_$][\w$]*+(?:(?:\.|::|\#)[A-Za-z_$][\w$]*+)*+)(?:\(\))?")


def find_paths(prose: str) -> NamedPaths:
    """Return the paths named in an item's text (its lines joined)."""
    spans = find_code_spans(prose)
    tail = list(_from_tail(prose))
    found = [*((span.start, span.content) for span in spans if _looks_like_path(span.content)), *tail]
    if "/" in prose:
        found += _from_words(prose, spans)
    words = dict.fromkeys(_clean(word) for _, word in sorted(found, key=itemgetter(0)))
    symbols = dict.fromkeys(name[1] for span in spans if (name := _SYMBOL.fullmatch(span.content)))
    last = {_clean(word) for _, word in tail}
    named = tuple(word for word in words if not _leaves(word))
    return NamedPaths(
        named=named,
        targets=tuple(word for word in named if word in last),
        refused=tuple(word for word in words if _leaves(word) and (".." in word.split("/") or _is_file_name(word))),
        symbols=tuple(name for name in symbols if name not in words),
    )


def find_command_paths(command: str) -> frozenset[str]:
    """Return the files and folders that a command names, ``tests/a.py::test_b`` without the test."""
    words = (_clean(word.partition("::")[0]) for word in _OPERAND.findall(_OUTPUT.sub("", command)))
    return frozenset(str(PurePosixPath(word)) for word in words if _looks_like_path(word) and not _leaves(word))


def find_command_modules(command: str) -> frozenset[str]:
    """Return the files of the modules that a command names: tests/test_a.py for ``python -m unittest tests.test_a``."""
    found = _MODULE.findall(command) if " -m " in command else []
    return frozenset(f"{name.replace('.', '/')}.py" for name in found)


def _from_tail(prose: str) -> Iterator[tuple[int, str]]:
    dashes = [*_DASH.finditer(prose)]
    for dash, stop in zip(dashes, [*(after.start() for after in dashes[1:]), len(prose)], strict=False):
        parts = (part for piece in _PIECE.findall(prose[dash.end() : stop]) for part in _AND.split(piece))
        pieces = [word for part in parts if (word := _clean_piece(part))]
        if all(map(_looks_like_path, pieces)):
            yield from ((dash.end(), piece) for piece in pieces)


def _clean_piece(piece: str) -> str:
    word = piece.strip()
    if word.endswith((")", ").")):
        word = _REMARK.sub("", word)
    return word.replace("`", "").rstrip(".").strip(" \t\n*")


def _from_words(prose: str, spans: tuple[CodeSpan, ...]) -> Iterator[tuple[int, str]]:
    done = 0
    for start, end in (*((span.start, span.end) for span in spans), (len(prose), len(prose))):
        for found in _BARE.finditer(prose, done, start):
            word = found[0].lstrip("([{*\"'").rstrip(".,;:)]}*\"'!?")
            if _find_extension(_LINE_SUFFIX.sub("", word)) and _looks_like_path(word):
                yield found.start(), word
        done = end


def _looks_like_path(word: str) -> bool:
    if word.startswith("-") or word.endswith("()") or not _WORD.fullmatch(word):
        return False
    word = _LINE_SUFFIX.sub("", word)
    if word.startswith("//") or _REMOTE.match(word) or _SCHEME.match(word):
        return False
    return ("/" in word and word.strip("/.") != "") or _is_file_name(word)


def _is_file_name(word: str) -> bool:
    return word.rpartition("/")[2] in _NAMES or _find_extension(word) in _EXTENSIONS


def _find_extension(word: str) -> str | None:
    """Return the extension in lower case; None without one."""
    stem, _, extension = word.rpartition("/")[2].rpartition(".")
    return extension.lower() if stem and _EXTENSION.fullmatch(extension) else None


def _clean(word: str) -> str:
    """Return a word as a path relative to the root; ``/src/x.py`` is one, ``/etc/hosts`` and ``/v1/keys`` are not."""
    word = _LINE_SUFFIX.sub("", word)
    if word.startswith("/") and _is_file_name(word) and not _SYSTEM.match(word):
        word = word.lstrip("/")
    return _HERE.sub("", word)


def _leaves(word: str) -> bool:
    return word.startswith(("/", "~")) or ".." in word.split("/")


_STATEMENT = re.compile(
    r"[*_]{0,3}(verif(?:y|ication)|after|runner|tools|model|effort)[*_]{0,3}[ \t]*:[*_]{0,3}[ \t]*", re.IGNORECASE
)
_VALIDATION = re.compile(r"(?:validation|verification|verify) commands?:?", re.IGNORECASE)
_FILES = re.compile(
    r"[*_]{0,3}(?:(?:key|affected|relevant|related|changed|modified|new)\s+)?files?"
    r"(?:\s+to\s+(?:create|modify|change|touch|edit|update)|\s+(?:affected|changed|modified|touched|involved))?"
    r"[*_]{0,3}[ \t]*:[*_]{0,3}",
    re.IGNORECASE,
)
_NOTHING = frozenset({"none", "nothing", "n/a", "-", "—", "–"})
_TARGET = re.compile(
    r"(?:(?:phase|task|step|iteration|milestone|stage|part|sprint|wave)s?\s*)?\#?(\d{1,9}(?:\.\d{1,9})*[a-z]?)",
    re.IGNORECASE,
)
RUNNER_NAME = r"[a-z][a-z0-9_-]{0,40}"
"""Pattern of a runner's name, in a plan and in the settings."""
MODEL_NAME = r"[\w.:/@\[\]-]{1,200}"
"""Pattern of a model's id, in the settings."""
EFFORTS = ("low", "medium", "high", "xhigh", "max")
_PLAIN_MODEL = r"[A-Za-z][\w.:/@\[\]-]*[\d:/-][\w.:/@\[\]-]*|opus|sonnet|haiku|fable"
"""A model's id in a plan, or a word for which `relay check` has a suggestion: ``Model: User`` is about a program."""
_PLAIN_EFFORT = r"(?!(?:xx?s|x?s|m|x{0,2}l|small|tiny|large|huge|big|low-medium)$)[A-Za-z]+"
"""One word: ``Effort: 2 days`` and ``Effort: M`` are about people."""
WISHES = {"runner": RUNNER_NAME, "model": _PLAIN_MODEL, "effort": _PLAIN_EFFORT}
"""Statements by which a phase chooses what runs it, each with the pattern of its value."""
_TOOL_NAME = r"[a-z0-9][a-z0-9-]{0,30}"
_MOST_TOOL_CHARS = 500
_SEPARATOR = re.compile(r" ?(?:,|;|&|\band\b) ?|(?<=\d) (?=\#?\d)", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """One line such as ``Verify: `pytest -q` `` or ``After: 1, 3``."""

    word: str
    """``verify``, ``after``, ``tools``, or one of `WISHES`."""
    line: int
    values: tuple[str, ...] = ()
    """Commands, numbers of phases (none for ``After: none``), names of tool servers, or the one name of a wish."""
    prose: str = ""
    """The words if they name nothing; such a line has no effect."""


def find_statement(text: str) -> str:
    """Return the word, such as ``verify`` or ``runner``, when a line starts with one of relay's words and a colon."""
    found = _STATEMENT.match(text)
    return found[1].lower().replace("verification", "verify") if found else ""


def read_statements(section: Section) -> Iterator[Statement]:
    """Yield the statements of one section; a bare ``After:`` is none, and in a list of files the word names a file."""
    entries, listed = section.entries, _find_listed(section.entries)
    for at, entry in enumerate(entries):
        found = _STATEMENT.match(entry.text) if _is_line(entry) else None
        if found is None:
            continue
        word, rest = find_statement(entry.text), entry.text[found.end() :].strip()
        rest = rest.rstrip("*_").rstrip() if entry.text[0] in "*_" else rest
        if word == "verify" and at not in listed:
            yield Statement(word=word, line=entry.line, values=_read_commands(rest, entries, at))
        elif word == "tools":
            names = (part.strip(" `.").casefold() for part in rest[: _MOST_TOOL_CHARS + 1].split(","))
            known = (name for name in names if re.fullmatch(_TOOL_NAME, name) and len(rest) <= _MOST_TOOL_CHARS)
            yield Statement(word=word, line=entry.line, values=tuple(known))
        elif word == "after" and rest:
            yield _read_after(entry.line, " ".join(rest.rstrip(".").split()))
        elif word in WISHES and rest:
            said = next(iter(_spans(rest)), rest.rstrip("."))
            name = said if word == "model" else said.casefold()
            is_known = re.fullmatch(WISHES[word], name, re.IGNORECASE) is not None
            values, prose = ((name,), "") if is_known else ((), rest)
            yield Statement(word=word, line=entry.line, values=values, prose=prose)


def read_file_list(section: Section) -> tuple[str, ...]:
    """Return the paths in the lists of a section that follow a label such as ``**Files:**``, each once."""
    named = (find_paths(section.entries[at].text).named for at in sorted(_find_listed(section.entries)))
    return tuple(dict.fromkeys(path for paths in named for path in paths))


def _find_listed(entries: Sequence[Entry]) -> frozenset[int]:
    """Return the indexes of entries in lists of files, labels included; a task ends a list."""
    listed: set[int] = set()
    label: int | None = None
    for at, entry in enumerate(entries):
        if _is_line(entry) and _FILES.match(entry.text):
            label = entry.depth
        elif label is not None and not (_is_line(entry) and entry.depth > label):
            label = None
        if label is not None:
            listed.add(at)
    return frozenset(listed)


def is_validation(section: Section) -> bool:
    """Whether a section is titled ``Validation Commands``."""
    return _VALIDATION.fullmatch(section.title.strip()) is not None


def read_validation_commands(section: Section) -> tuple[str, ...]:
    """Return the commands of a section titled ``Validation Commands``; of any other section, none."""
    if section.boxes or not is_validation(section):
        return ()
    readers = {EntryKind.BULLET: _spans, EntryKind.CODE: _read_script}
    return tuple(c for entry in section.entries if (read := readers.get(entry.kind)) for c in read(entry.text))


def _is_line(entry: Entry) -> bool:
    return entry.kind in {EntryKind.PROSE, EntryKind.BULLET}


def _read_commands(rest: str, entries: Sequence[Entry], at: int) -> tuple[str, ...]:
    """Return the commands of a ``Verify:`` line, or of the code block or the list of code spans below a bare one."""
    if rest:
        return _spans(rest) or (() if rest.casefold() in _NOTHING else (rest,))
    if at + 1 < len(entries) and entries[at + 1].kind is EntryKind.CODE:
        return tuple(_read_script(entries[at + 1].text))
    below = (entries[n] for n in range(at + 1, len(entries)))
    bullets = takewhile(lambda one: one.kind is EntryKind.BULLET and one.depth > entries[at].depth, below)
    return tuple(command for one in bullets if one.text.startswith("`") for command in _spans(one.text))


def _read_script(block: str) -> Iterator[str]:
    joined = re.sub(r"\\\n[ \t]*", "", block)
    for line in joined.split("\n"):
        command = line.strip().removeprefix("$ ").strip()
        if command and not command.startswith("#"):
            yield command


def _spans(text: str) -> tuple[str, ...]:
    return tuple(span.content.strip() for span in find_code_spans(text) if span.content.strip())


def _read_after(line: int, rest: str) -> Statement:
    if rest.casefold() in _NOTHING:
        return Statement(word="after", line=line)
    targets = [_TARGET.fullmatch(part) for part in _SEPARATOR.split(rest) if part]
    names = tuple(target[1] for target in targets if target)
    is_order = bool(names) and all(targets)
    return Statement(word="after", line=line, values=names if is_order else (), prose="" if is_order else rest)
