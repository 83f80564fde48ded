"""The files and folders that an item or a command names.

An item names a path in three ways: a code span that looks like a path, the tail after `` — ``, and a bare word with a
slash and an extension (spec-kit's ``in src/x.py``). Paths that leave the repository are never returned as its own.
"""

import posixpath
import re
import shlex
from collections.abc import Iterator
from operator import itemgetter
from pathlib import PurePosixPath

from relay.base.values import dataclass
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
_CD = re.compile(r"""\s*cd[ \t]+((?:'[^'\n]*'|"[^"$`\\\n]*"|[^\s'"`$\\;&|<>()*?\[\]{}#!~]++)++)[ \t]*&&[ \t]*(?=\S)""")
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
    """Return the files and folders that a command names, from the root; ``tests/a.py::test_b`` without the test."""
    folder, rest = split_place(command)
    words = (_clean(word.partition("::")[0]) for word in _OPERAND.findall(_OUTPUT.sub("", rest)))
    return frozenset(str(PurePosixPath(folder, word)) for word in words if _looks_like_path(word) and not _leaves(word))


def find_command_modules(command: str) -> frozenset[str]:
    """Return the files of the modules that a command names: tests/test_a.py for ``python -m unittest tests.test_a``."""
    folder, rest = split_place(command)
    found = _MODULE.findall(rest) if " -m " in rest else []
    return frozenset(str(PurePosixPath(folder, f"{name.replace('.', '/')}.py")) for name in found)


def place(command: str, folder: str) -> str:
    """Return a command as one that runs in a directory, from the root; one that begins with ``cd`` says it itself.

    The directory is a part of the command's text: whoever reads a gate, its commit or its log can run it again.
    """
    if not folder or re.match(r"\s*(?:cd|pushd)\s", command):
        return command
    if re.search(r"[;\n]|\|\||(?<![&>])&(?![&>])", command):  # cd guards all of it
        command = f"( {command}{chr(10) if '#' in command or chr(10) in command else ' '})"
    name = posixpath.normpath(folder)
    return f"cd {shlex.quote(f'./{name}' if name.startswith('-') else name)} && {command}"


def split_place(command: str) -> tuple[str, str]:
    """Return the directory in which a command runs, from the root, and the rest of it.

    The directory is empty without a ``cd`` at the beginning, and where that goes out of the repository.
    """
    found = _CD.match(command)
    words = shlex.split(found[1]) if found else []
    if found is None or len(words) != 1 or _leaves(words[0]):
        return "", command
    return posixpath.normpath(words[0]), command[found.end() :]


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
