"""From text to tokens: part 1 of the specification."""

import re
from typing import Any, NamedTuple

from filters import FilterError

WORDS = frozenset({"and", "or", "not", "in", "true", "false", "null"})
_ESCAPES = {'"': '"', "\\": "\\", "n": "\n", "t": "\t"}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?")
_OPERATOR = re.compile(r"!=|<=|>=|[=<>()\[\],]")


class Token(NamedTuple):
    kind: str
    value: Any
    column: int


def tokenize(text: str) -> list[Token]:
    tokens: list[Token] = []
    at = 0
    while at < len(text):
        if text[at] in " \t\n":
            at += 1
        elif text[at] == '"':
            value, end = _read_string(text, at)
            tokens.append(Token("string", value, at + 1))
            at = end
        elif found := _NUMBER.match(text, at):
            at = _check_number(text, found.end())
            tokens.append(Token("number", float(found[0]) if found[1] else int(found[0]), found.start() + 1))
        elif found := _NAME.match(text, at):
            tokens.append(Token("word" if found[0] in WORDS else "name", found[0], at + 1))
            at = found.end()
        elif found := _OPERATOR.match(text, at):
            tokens.append(Token("operator", found[0], at + 1))
            at = found.end()
        else:
            raise FilterError(f"unexpected {text[at]!r}", at + 1)
    return [*tokens, Token("end", "", len(text) + 1)]


def _check_number(text: str, end: int) -> int:
    if text[end : end + 1] == "." or _NAME.match(text, end):
        raise FilterError(f"unexpected {text[end]!r} behind a number", end + 1)
    return end


def _read_string(text: str, start: int) -> tuple[str, int]:
    value, at = "", start + 1
    while at < len(text) and text[at] != "\n":
        if text[at] == '"':
            return value, at + 1
        if text[at] == "\\":
            if text[at + 1 : at + 2] not in _ESCAPES:
                raise FilterError("unknown escape", at + 1)
            value += _ESCAPES[text[at + 1]]
            at += 2
        else:
            value += text[at]
            at += 1
    raise FilterError("a string is not closed", start + 1)
