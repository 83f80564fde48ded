"""Find and redact secrets in text. Pure.

Tokens are known by their form. Values of relay's own environment, and those that it hands to gates and tool servers,
are searched for as they are and as programs usually write them.

The rules know tokens by the form that their issuers gave them so that scanners can find them. No rule of relay's own
looks for entropy or for ``password = …``: on source code such a rule is mostly wrong, and a rule that stops a commit
must not be. gitleaks' rules were chosen and translated by ``tests/secrets/gitleaks.py``; the data file has their source
and licence.

Every pattern is linear: nothing unbounded is followed by something that can fail, unless it starts at the beginning of
a run. relay looks for a rule's anchor first, and compiles and tries only the rules whose anchor it finds.
"""

import base64
import json
import math
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, lru_cache
from pathlib import Path
from urllib.parse import quote, quote_plus

from relay.base.values import dataclass

_MIN_DISTINCT = 6
"""A token of fewer different characters is a placeholder: ``ghp_xxxxxxxx…``."""
_MIN_KEYWORD = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """The form of one kind of token."""

    kind: str
    """Such as ``an AWS access key``."""
    anchors: tuple[str, ...]
    """A text without any of these cannot match."""
    pattern: str
    stops: bool = True
    """False: redacted, but too common in examples to stop a commit."""
    any_case: bool = False
    """The anchors are in lower case and match any case."""
    entropy: float = 0.0
    """Least Shannon entropy of a token in bits per character; 0: count its different characters instead."""

    def is_token(self, text: str) -> bool:
        """Return False for a placeholder."""
        if self.entropy:
            counts = Counter(text).values()
            return -sum(n / len(text) * math.log2(n / len(text)) for n in counts) >= self.entropy
        return len(set(text)) >= _MIN_DISTINCT + len(set(self.anchors[0])) // 2


@cache
def load_foreign() -> tuple[Rule, ...]:
    """Return gitleaks' rules; relay's own are for tokens that these do not know, or whose name people know."""
    data = json.loads(Path(__file__).with_name("gitleaks.json").read_text(encoding="utf-8"))
    return tuple(
        Rule(
            kind=f"a secret ({rule['id']})",
            anchors=tuple(rule["keywords"]),
            pattern=rule["pattern"],
            any_case=True,
            entropy=rule["entropy"],
        )
        for rule in data["rules"]
    )


def _rule(kind: str, anchors: str, pattern: str, *, stops: bool = True) -> Rule:
    names = tuple(anchors.split())
    # A distinctive token may follow a letter or a digit. Others may not, except the letter of an escape such as `\\n`.
    distinct = stops and all(len(name) >= _MIN_KEYWORD and re.search(r"[_.:-]", name) for name in names)
    bounded = rf"(?:(?<![A-Za-z0-9])|(?<=\\[nrt])){pattern}"
    return Rule(kind=kind, anchors=names, pattern=pattern if distinct else bounded, stops=stops)


OWN = (
    _rule("an Anthropic key", "sk-ant-", r"sk-ant-[A-Za-z0-9_-]{20,}"),
    _rule("an OpenAI key", "sk-proj- sk-svcacct- sk-admin-", r"sk-(?:proj|svcacct|admin)-[A-Za-z0-9_-]{20,}"),
    _rule("an OpenRouter key", "sk-or-v1-", r"sk-or-v1-[0-9a-f]{64}"),
    _rule("an AWS access key", "AKIA ASIA ABIA ACCA", r"A(?:KIA|SIA|BIA|CCA)[A-Z2-7]{16}(?![A-Za-z0-9])(?<!EXAMPLE)"),
    _rule("a GitHub token", "ghp_ gho_ ghu_ ghs_ ghr_", r"gh[pousr]_[A-Za-z0-9]{36,}"),
    _rule("a GitHub token", "github_pat_", r"github_pat_[A-Za-z0-9_]{50,}"),
    _rule("a GitLab token", "glpat- gldt- glrt- glcbt- glptt- glft- glsoat- glagent- gloas-",
          r"gl(?:pat|dt|rt|cbt|ptt|ft|soat|agent|oas)-[A-Za-z0-9_-]{20,}"),
    _rule("a Slack token", "xoxa- xoxb- xoxe- xoxo- xoxp- xoxr- xoxs-", r"xox[abeoprs]-[0-9A-Za-z-]{20,}"),
    _rule("a Slack webhook", "hooks.slack.com",
          r"https://hooks\.slack\.com/(?:services|workflows)/[A-Za-z0-9+/]{40,}"),
    _rule("a Google API key", "AIza", r"AIza[A-Za-z0-9_-]{35}"),
    _rule("a Google OAuth secret", "GOCSPX- ya29.", r"(?:GOCSPX-[A-Za-z0-9_-]{28}|ya29\.[A-Za-z0-9_-]{40,})"),
    _rule("a PyPI token", "pypi-AgE", r"pypi-AgE[A-Za-z0-9_-]{50,}"),
    _rule("a Twilio key", "SK", r"SK[0-9a-f]{32}(?![0-9A-Za-z])"),
    _rule("a Telegram bot token", ":AA", r"\d{8,10}:AA[A-Za-z0-9_-]{33}"),
    _rule("a Square token", "sq0atp- sq0csp-", r"sq0(?:atp|csp)-[A-Za-z0-9_-]{22,}"),
    _rule("a Vault token", "hvs. hvb.", r"hv[sb]\.[A-Za-z0-9_-]{24,}"),
    _rule("an age key", "AGE-SECRET-KEY-1", r"AGE-SECRET-KEY-1[A-Z0-9]{58}"),
    _rule("an Atlassian token", "ATATT3", r"ATATT3[A-Za-z0-9_=-]{100,}"),
    _rule("a Docker token", "dckr_pat_ dckr_oat_", r"dckr_[po]at_[A-Za-z0-9_-]{27,}"),
    _rule("an Azure storage key", "AccountKey=", r"AccountKey=[A-Za-z0-9+/]{86}=="),
    # Only at the beginning of a run: in `-eyJ-eyJ…` each match would else read to the end.
    _rule("a JSON web token", "eyJ", r"(?:(?<![\w-])|(?<=\\[nrt]))eyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]{20,}"),
    # Programs compare with a bare header; a key has a body. `\\n` is a line end inside of a string.
    _rule("a private key", "PRIVATE KEY",
          r"-----BEGIN[ A-Z0-9]{0,40}PRIVATE KEY(?: BLOCK)?-----"
          r"(?:(?!-----END)(?:[A-Za-z0-9+/=:,. \t\r\n-]|\\n)){64,}"
          r"(?:-----END[ A-Z0-9]{0,40}PRIVATE KEY(?: BLOCK)?-----)?"),
    _rule("a Groq key", "gsk_", r"gsk_[A-Za-z0-9]{40,}"),
    _rule("an xAI key", "xai-", r"xai-[A-Za-z0-9]{60,}"),
    _rule("a Replicate token", "r8_", r"r8_[A-Za-z0-9]{37}"),
    _rule("a LangSmith key", "lsv2_", r"lsv2_(?:pt|sk)_[0-9a-f]{32}_[0-9a-f]{10}"),
    _rule("a Pinecone key", "pcsk_", r"pcsk_[A-Za-z0-9_]{40,}"),
    _rule("a Perplexity key", "pplx-", r"pplx-[A-Za-z0-9]{40,}"),
    _rule("a Bitbucket password", "ATBB", r"ATBB[A-Za-z0-9]{32}"),
    _rule("a Discord webhook", "/api/webhooks/",
          r"https://[a-z.]{0,20}discord(?:app)?\.com/api/webhooks/\d{17,20}/[\w-]{60,}"),
    _rule("a Discord bot token", ".", r"[MNO][\w-]{23,27}\.[\w-]{6}\.[\w-]{27,40}(?![\w-])"),
    _rule("a webhook secret", "whsec_", r"whsec_[A-Za-z0-9+/=]{24,}"),
    _rule("a Mailgun key", "key-", r"key-[0-9a-f]{32}(?![0-9A-Za-z])"),
    _rule("a Vercel token", "vcp_ vck_ vca_ vci_ vcr_", r"vc[pkair]_[A-Za-z0-9]{24,}"),
    _rule("a Vercel token", "vercel_blob_rw_", r"vercel_blob_rw_[A-Za-z0-9_]{24,}"),
    _rule("a Supabase key", "sbp_ sb_secret_", r"sb(?:p_(?:v0_)?[0-9a-f]{40}|_secret_[A-Za-z0-9_-]{20,})"),
    _rule("a Neon key", "napi_", r"napi_[A-Za-z0-9]{40,}"),
    _rule("a Fly token", "fm1 fm2_", r"fm(?:1[ar]?|2)_[A-Za-z0-9+/=_-]{60,}"),
    _rule("a Resend key", "re_", r"re_[A-Za-z0-9]{8}_[A-Za-z0-9]{24}(?![A-Za-z0-9])"),
    _rule("a Notion token", "ntn_ secret_", r"(?:ntn_\d{11}[A-Za-z0-9]{35}|secret_[A-Za-z0-9]{43}(?![A-Za-z0-9_]))"),
    _rule("a Figma token", "figd_ figo_ figu_ figdr_ figor_ figur_", r"fig[dou]r?_[A-Za-z0-9_-]{40,}"),
    _rule("an Airtable token", "pat", r"pat[A-Za-z0-9]{14}\.[0-9a-f]{64}"),
    _rule("a Sentry token", "sntrys_ sntryu_", r"sntry(?:u_[0-9a-f]{64}|s_[A-Za-z0-9+/=_]{60,})"),
    _rule("a New Relic key", "NRAK- NRII- NRJS-", r"NR(?:AK|II|JS)-[A-Za-z0-9_-]{19,40}"),
    _rule("a Tailscale key", "tskey-", r"tskey-[a-z]{3,12}-[A-Za-z0-9]{4,40}-[A-Za-z0-9]{20,}"),
    _rule("a Sourcegraph token", "sgp_", r"sgp_(?:[0-9a-f]{16}_|local_)?[0-9a-f]{40}"),
    _rule("a password in a URL", "://", r"(?<=://)[^/\s:@\"\\]{1,100}:[^/\s@\"\\]{1,200}(?=@)", stops=False),
    _rule("a bearer token", "earer ", r"(?<=[Bb]earer )[A-Za-z0-9._~+/=-]{12,}", stops=False),
)  # fmt: skip


REDACTED = "[redacted]"
ALLOW = "relay: allow secret"
"""A comment that marks a line as free of secrets. Values of the environment are never allowed."""
FROM_ENVIRONMENT = "the value of a secret in relay's environment"

_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL|(?:^|_)(?:PAT|AUTH|DSN)$", re.IGNORECASE)
_WITH_LOGIN = re.compile(r"[a-z][a-z0-9+.-]{1,30}://[^/\s@:]*:?([^/\s@]*)@\S+", re.IGNORECASE)
"""A URL with a login, whatever its variable is called: ``DATABASE_URL``, ``MONGODB_URI``."""
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
"""A shorter value of the environment may well be a word."""
_MIN_HANDED_CHARS = 6
"""The same for a value that relay hands out under the name of a secret."""
_ASSIGNED = re.compile(
    r"^[ \t]*(?:export[ \t]+)?([\w.-]+)[ \t]*[=:][ \t]*(\"(?:[^\"\\]|\\.)*\"|'[^']*'|.*)|(password)[ \t]+(\S+)",
    re.MULTILINE,
)
"""A line of a .env or .pypirc, whose quoted value may have more lines, and of a .netrc."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """A place that looks like a secret; the secret itself is not kept."""

    line: int
    """1-based."""
    kind: str
    """Such as ``an AWS access key``."""
    allowed: bool = False
    """The line carries the `ALLOW` comment; never for a value of the environment."""


def find_secret_values(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the values of variables whose names say secret, longest first; paths and URLs are none.

    A URL with a login is a secret under any name, and so is its password.
    """
    values = {value for name, value in environ.items() if _is_secret(name) and _is_value(value)}
    for match in filter(None, map(_WITH_LOGIN.fullmatch, environ.values())):
        values |= {text for text in match.group(0, 1) if _is_value(text)}
    return tuple(sorted(values, key=lambda value: (-len(value), value)))


def read_assignments(text: str) -> Iterator[tuple[str, str]]:
    """Yield the names and values in a file of credentials, each value in every way that programs may read it."""
    for name, value, other, word in _ASSIGNED.findall(text):
        yield name or other, (value or word).strip()
        if value[:1] in {'"', "'"}:
            yield name, value[1:-1]
            yield name, re.sub(r"\\(.)", lambda found: "\n" if found[1] == "n" else found[1], value[1:-1])
        else:
            yield name, value.partition(" #")[0].strip()


def find_handed_values(pairs: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Return the values that are no short words. They are redacted from the output of the programs that got them."""
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
    """Return the places that look like a secret in line order, each line and kind once.

    Args:
        text: Of a file or a message.
        environ_values: From `find_secret_values`.
    """
    places = {(start, FROM_ENVIRONMENT) for start, _ in _find_values(text, environ_values)}
    rules = _find_rules(text)
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
    """Return the text with every likely secret replaced; JSON stays JSON."""
    spans = {span for rule in _find_rules(text) for span in _match(rule, text)}
    return _replace(text, {*_find_values(text, environ_values), *spans})


def hide_values(text: str, values: Iterable[str]) -> str:
    """Return the text with these values replaced, and nothing else; JSON stays JSON."""
    return _replace(text, _find_values(text, values))


def _find_rules(text: str) -> set[Rule]:
    """Return the rules with an anchor in the text; 0.1 ms for an event, 40 ms for a megabyte."""
    texts = {True: text.lower(), False: text}
    return {rule for rule in (*OWN, *load_foreign()) if any(map(texts[rule.any_case].__contains__, rule.anchors))}


def redact_for_strangers(text: str, environ: Mapping[str, str]) -> str:
    """Return a text that may be pasted anywhere: even a weak suspicion is replaced."""
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
    for value in values:
        for form in _list_forms(value):
            at = text.find(form)
            while at >= 0:
                yield at, at + len(form)
                at = text.find(form, at + len(form))


@lru_cache(maxsize=512)
def _list_forms(value: str) -> frozenset[str]:
    """Return a value's spellings: plain, JSON, JSON in JSON, URL, HTML, base64 and hex.

    Base64 has three, for the three places at which the value may begin in a group of three bytes.
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
    for match in re.finditer(rule.pattern, text, re.ASCII):  # compiled on first use: all would take a fifth of a second
        if rule.is_token(match[0]):
            yield match.span()
