"""What looks like a secret in a text. Pure.

Tokens are known by their form (`relay.base.secret_forms`). Values of relay's own environment, and those that it hands
to gates and tool servers, are looked for as they are and as programs usually write them.
"""

import base64
import json
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, lru_cache
from itertools import groupby
from urllib.parse import quote, quote_plus

from relay.base.secret_forms import OWN, Rule, compile_rule, load_foreign
from relay.base.values import dataclass

REDACTED = "[redacted]"
ALLOW = "relay: allow secret"
"""On a line it says that what a rule finds there is none. Values of the environment are never allowed."""
FROM_ENVIRONMENT = "the value of a secret in relay's environment"

_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL|(?:^|_)(?:PAT|AUTH|DSN)$", re.IGNORECASE)
_WITH_LOGIN = re.compile(r"[a-z][a-z0-9+.-]{1,30}://[^/\s@:]*:?([^/\s@]*)@\S+", re.IGNORECASE)
"""An address with a login in it, whatever the name of its variable: ``DATABASE_URL``, ``MONGODB_URI``."""
_PLAIN_NAME = re.compile(r"ANTHROPIC_(BASE_URL|\w*MODEL\w*)|.*_(URL|PATH|FILE|DIR)", re.IGNORECASE)
_SUSPECT_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL|AUTH(?!OR)", re.IGNORECASE)
_SUSPECT = re.compile(
    r"sk-[A-Za-z0-9_-]{8,}"
    r"|(?<=://)[^/\s:@]+:[^/\s@]+(?=@)"
    r"|(?i:(?<=bearer )|(?<=x-api-key: ))\S+"
    r"|gh[pousr]_[A-Za-z0-9]{16,}"
)
_MIN_SUSPECT_CHARS = 6
MIN_VALUE_CHARS = 12
"""Shorter values of the environment are as likely to be words."""
_MIN_HANDED_CHARS = 6
"""The same of a value that is handed out under the name of a secret."""
_ASSIGNED = re.compile(
    r"^[ \t]*(?:export[ \t]+)?([\w.-]+)[ \t]*[=:][ \t]*(\"(?:[^\"\\]|\\.)*\"|'[^']*'|.*)|(password)[ \t]+(\S+)",
    re.MULTILINE,
)
"""A line of a .env or .pypirc, whose quoted value may have more lines, and of a .netrc."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """One place that looks like a secret; the secret itself is not kept."""

    line: int
    """1-based."""
    kind: str
    """Such as ``an AWS access key``."""
    allowed: bool = False
    """The line carries the comment of `ALLOW`; never for a value of the environment."""


def find_secret_values(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the values of variables that hold secrets by their name, longest first; paths and addresses are none.

    An address that holds a login is one, under any name, and so is its password.
    """
    values = {value for name, value in environ.items() if _is_secret(name) and _is_value(value)}
    for match in filter(None, map(_WITH_LOGIN.fullmatch, environ.values())):
        values |= {text for text in match.group(0, 1) if _is_value(text)}
    return tuple(sorted(values, key=lambda value: (-len(value), value)))


def read_assignments(text: str) -> Iterator[tuple[str, str]]:
    """Yield the names and values that a file with credentials sets, each value as programs may read it."""
    for name, value, other, word in _ASSIGNED.findall(text):
        yield name or other, (value or word).strip()
        if value[:1] in {'"', "'"}:
            yield name, value[1:-1]
            yield name, re.sub(r"\\(.)", lambda found: "\n" if found[1] == "n" else found[1], value[1:-1])
        else:
            yield name, value.partition(" #")[0].strip()


def find_handed_values(pairs: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Return those of the values that are no short words: they are taken out of what is printed by who got them."""
    given = tuple(pairs)
    logins = [("PASSWORD", match[1]) for _, value in given if (match := _WITH_LOGIN.fullmatch(value))]
    return tuple(
        value
        for name, value in dict.fromkeys((*given, *logins))
        if len(value) >= (_MIN_HANDED_CHARS if _is_secret(name) else MIN_VALUE_CHARS)
    )


def _is_secret(name: str) -> bool:
    return bool(_SECRET_NAME.search(name) or name.startswith("ANTHROPIC_")) and not _PLAIN_NAME.fullmatch(name)


def _is_value(value: str) -> bool:
    return len(value) >= MIN_VALUE_CHARS and not value.startswith(("/", "~"))


def find_secrets(text: str, *, environ_values: Iterable[str] = ()) -> tuple[Suspect, ...]:
    """Return what looks like a secret, in the order of lines, each line and kind once.

    Args:
        text: Of a file or a message.
        environ_values: As `find_secret_values` gave them.
    """
    lowered = text.lower()
    places = {(start, FROM_ENVIRONMENT) for start, _ in _find_values(text, environ_values)}
    rules = find_rules(text, lowered)
    places |= {(start, rule.kind) for rule in OWN if rule.stops and rule in rules for start, _ in _match(rule, text)}
    others = {(start, rule.kind) for rule in rules.difference(OWN) for start, _ in _match(rule, text)}
    if not (places or others):
        return ()
    starts = [0, *(match.end() for match in re.finditer("\n", text))]
    found = {(bisect_right(starts, start), kind) for start, kind in places}
    known = {line for line, _ in found}
    found |= {(line, kind) for start, kind in others if (line := bisect_right(starts, start)) not in known}
    lines = text.split("\n")
    return tuple(
        Suspect(line=line, kind=kind, allowed=kind != FROM_ENVIRONMENT and ALLOW in lines[line - 1])
        for line, kind in sorted(found)
    )


def redact(text: str, *, environ_values: Iterable[str] = ()) -> str:
    """Return the text with everything that looks like a secret replaced; inside JSON the result is JSON again."""
    spans = {span for rule in find_rules(text, text.lower()) for span in _match(rule, text)}
    return _replace(text, {*_find_values(text, environ_values), *spans})


def hide_values(text: str, values: Iterable[str]) -> str:
    """Return the text with these values replaced, and nothing else; inside JSON the result is JSON again."""
    return _replace(text, _find_values(text, values))


def find_rules(text: str, lowered: str) -> set[Rule]:
    """Return the rules that have an anchor in the text; one pass for nearly all: every event is looked through."""
    known = _list_anchors()
    found = {character for character in known.characters if character in lowered}
    match = known.pattern.search(lowered)
    while match:
        found.add(match[0])
        match = known.pattern.search(lowered, match.start() + 1)  # another one may begin inside of it
    there = (entry for start in found for entry in known.by_start[start])
    return {rule for anchor, any_case, rules in there if anchor in (lowered if any_case else text) for rule in rules}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Anchors:
    """The anchors of all rules, by what they begin with in lower case; a longer one stands with a shorter such."""

    by_start: Mapping[str, list[tuple[str, bool, tuple[Rule, ...]]]]
    """Each anchor, whether it stands for any case, and its rules."""
    characters: tuple[str, ...]
    """Those of the beginnings that are one character, which stands in most texts, and often."""
    pattern: re.Pattern[str]
    """Finds any other in a lowered text."""


@cache
def _list_anchors() -> _Anchors:
    found: dict[tuple[str, bool], tuple[Rule, ...]] = {}
    for rule in (*OWN, *load_foreign()):
        for anchor in rule.anchors:
            found[anchor, rule.any_case] = (*found.get((anchor, rule.any_case), ()), rule)
    starts: dict[str, list[tuple[str, bool, tuple[Rule, ...]]]] = {}
    start = "\0"  # begins none
    for (anchor, any_case), rules in sorted(found.items(), key=lambda entry: entry[0][0].lower()):
        start = start if anchor.lower().startswith(start) else anchor.lower()
        starts.setdefault(start, []).append((anchor, any_case, rules))
    # By first letters: at most places of a text none begins.
    groups = groupby((start for start in starts if len(start) > 1), key=lambda start: start[0])
    words = (f"{re.escape(first)}(?:{'|'.join(re.escape(word[1:]) for word in group)})" for first, group in groups)
    characters = tuple(start for start in starts if len(start) == 1)
    return _Anchors(by_start=starts, characters=characters, pattern=re.compile("|".join(words)))


def redact_for_strangers(text: str, environ: Mapping[str, str]) -> str:
    """Return a text that may be pasted anywhere: what only might be a secret is replaced as well."""
    values = {
        value for name, value in environ.items() if _SUSPECT_NAME.search(name) and len(value) >= _MIN_SUSPECT_CHARS
    }
    spans = {*_find_values(text, values), *(match.span() for match in _SUSPECT.finditer(text))}
    return redact(_replace(text, spans), environ_values=find_secret_values(environ))


def _replace(text: str, found: Iterable[tuple[int, int]]) -> str:
    spans = sorted(found)
    parts: list[str] = []
    at = 0
    for start, end in spans:
        if start >= at:
            parts += [text[at:start], REDACTED]
        at = max(at, end)
    return "".join([*parts, text[at:]])


def _find_values(text: str, values: Iterable[str]) -> Iterator[tuple[int, int]]:
    """Find values as they are, and as programs write them."""
    for value in values:
        for form in _list_forms(value):
            at = text.find(form)
            while at >= 0:
                yield at, at + len(form)
                at = text.find(form, at + len(form))


@lru_cache(maxsize=512)
def _list_forms(value: str) -> frozenset[str]:
    """Return how a value is written: as it is, in JSON and in JSON within JSON, in addresses, HTML, base64 and hex.

    Where in a character of base64 it begins depends on what stands before it.
    """
    import html

    data = value.encode("utf-8", "surrogatepass")
    written = json.dumps(value)[1:-1]
    forms = {value, written, json.dumps(value, ensure_ascii=False)[1:-1], json.dumps(written)[1:-1], html.escape(value)}
    for quoted in (quote(data, safe=""), quote(data), quote_plus(data)):
        forms |= {quoted, re.sub("%..", lambda found: found[0].lower(), quoted)}
    for before, start in enumerate((0, 2, 3)):
        inner = base64.b64encode(bytes(before) + data)[start : (before + len(data)) * 4 // 3].decode()
        forms |= {inner, inner.translate({ord("+"): "-", ord("/"): "_"})}
    return frozenset({*forms, data.hex(), data.hex().upper()})


def _match(rule: Rule, text: str) -> Iterator[tuple[int, int]]:
    for match in compile_rule(rule.pattern).finditer(text):
        if rule.is_token(match[0]):
            yield match.span()
