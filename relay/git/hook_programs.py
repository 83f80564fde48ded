"""The programs that a hook cannot do without, as its first bytes name them; they may hold anything. Pure."""

import os
import re
import shlex

HEAD_BYTES = 4096
_LONGEST_LINE = 120
"""Of a first line: kernels before Linux 5.1 cut it here, and what they look for then nobody knows."""
_NAME = re.compile(rb"[A-Za-z0-9_.+/][A-Za-z0-9_.+/-]*\r?")
_ENV = frozenset({b"/usr/bin/env", b"/bin/env"})
_FRAMEWORK = re.compile(
    rb"(?:#[^\n]*\n|\n)*INSTALL_PYTHON=([^\n]+)\n(?:ARGS\+?=\([^\n()]*\)\n|HERE=[^\n]*\n|#[^\n]*\n|\n)*"
    rb'if \[ -x "\$INSTALL_PYTHON" \]; then\n    exec "\$INSTALL_PYTHON" -mpre_commit [^\n]*\n'
    rb"elif command -v pre-commit > /dev/null; then\n    exec pre-commit [^\n]*\n"
    rb"else\n    echo [^\n]*\n    exit 1\nfi\n?"
)
"""A hook that nobody has added a line to. Source: pre-commit 4.7.0, resources/hook-tmpl."""


def parse_programs(head: bytes) -> tuple[tuple[str, ...], ...]:
    """Return groups of programs of which one each has to be there: paths, and names that are looked for on PATH.

    Empty where nothing is known: git gives a hook without a first line for the kernel to ``sh``.
    """
    line, _, rest = head.partition(b"\n")
    if not line.startswith(b"#!") or len(line) > _LONGEST_LINE or b"\0" in line:
        return ()
    program, _, argument = line[2:].replace(b"\t", b" ").strip(b" ").partition(b" ")
    # The kernel looks for a name in the directory where git starts the hook, never on PATH.
    first = program if b"/" in program else b"./" + program
    found = [(first,) if program else (), _parse_env(argument) if program in _ENV else ()]
    if value := _FRAMEWORK.fullmatch(rest):
        found.append(_parse_python(value[1]))
    return tuple(tuple(map(os.fsdecode, group)) for group in found if group)


def _parse_env(argument: bytes) -> tuple[bytes, ...]:
    """Return the name that ``env`` is given; nothing where it is given anything else."""
    words = argument.split(b" ")
    if words[0] == b"-S":
        words = argument.split()[1:]
    return (words[0],) if words and _NAME.fullmatch(words[0]) else ()


def _parse_python(value: bytes) -> tuple[bytes, ...]:
    """Return the one that made a hook and who stands in for it; nothing of a value that is not quoted as it quotes."""
    text = os.fsdecode(value)
    try:
        words = shlex.split(text)
    except ValueError:
        return ()
    return (os.fsencode(words[0]), b"pre-commit") if list(map(shlex.quote, words)) == [text] else ()
