"""What looks like a secret in a text. Pure.

The rules know tokens by the form that their issuers gave them so that scanners can find them; each form is from the
issuer's documentation. There is no rule for entropy or for ``password = …``: on source code these are mostly wrong,
and what stops a commit must not be. Values of relay's own environment are looked for verbatim as well.
"""

import json
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

REDACTED = "[redacted]"
ALLOW = "relay: allow secret"
"""On a line it says that what a rule finds there is none. Values of the environment are never allowed."""
FROM_ENVIRONMENT = "the value of a secret in relay's environment"

_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL", re.IGNORECASE)
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
_MIN_DISTINCT = 6
"""A token of fewer different characters is a placeholder: ``ghp_xxxxxxxx…``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """One place that looks like a secret; the secret itself is not kept."""

    line: int
    """1-based."""
    kind: str
    """Such as ``an AWS access key``."""
    allowed: bool = False
    """The line carries the comment of `ALLOW`; never for a value of the environment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rule:
    kind: str
    anchors: tuple[str, ...]
    """A text without any of these cannot match; looking for them costs next to nothing."""
    pattern: re.Pattern[str]
    stops: bool = True
    """False: redacted, but too common in examples to stop a commit."""


def _rule(kind: str, anchors: str, pattern: str, *, stops: bool = True) -> _Rule:
    bounded = rf"(?:(?<![A-Za-z0-9])|(?<=\\[nrt])){pattern}"  # also behind a line end inside of a string
    return _Rule(kind=kind, anchors=tuple(anchors.split()), pattern=re.compile(bounded), stops=stops)


_RULES = (
    _rule("an Anthropic key", "sk-ant-", r"sk-ant-[A-Za-z0-9_-]{20,}"),
    _rule("an OpenAI key", "sk-proj- sk-svcacct- sk-admin-", r"sk-(?:proj|svcacct|admin)-[A-Za-z0-9_-]{20,}"),
    _rule("an OpenAI key", "T3BlbkFJ", r"sk-[A-Za-z0-9]{20}T3BlbkFJ[A-Za-z0-9]{20}"),
    _rule("an OpenRouter key", "sk-or-v1-", r"sk-or-v1-[0-9a-f]{64}"),
    _rule("an AWS access key", "AKIA ASIA ABIA ACCA", r"A(?:KIA|SIA|BIA|CCA)[A-Z2-7]{16}(?![A-Za-z0-9])(?<!EXAMPLE)"),
    _rule("a GitHub token", "ghp_ gho_ ghu_ ghs_ ghr_", r"gh[pousr]_[A-Za-z0-9]{36,}"),
    _rule("a GitHub token", "github_pat_", r"github_pat_[A-Za-z0-9_]{50,}"),
    _rule("a GitLab token", "glpat- gldt- glrt- glcbt- glptt- glft- glsoat- glagent- gloas-",
          r"gl(?:pat|dt|rt|cbt|ptt|ft|soat|agent|oas)-[A-Za-z0-9_-]{20,}"),
    _rule("a Slack token", "xoxa- xoxb- xoxe- xoxo- xoxp- xoxr- xoxs-", r"xox[abeoprs]-[0-9A-Za-z-]{20,}"),
    _rule("a Slack token", "xapp-", r"xapp-\d-[A-Z0-9]+-\d+-[a-z0-9]{20,}"),
    _rule("a Slack webhook", "hooks.slack.com",
          r"https://hooks\.slack\.com/(?:services|workflows)/[A-Za-z0-9+/]{40,}"),
    _rule("a Stripe key", "sk_live_ rk_live_ sk_test_ rk_test_", r"[sr]k_(?:live|test)_[A-Za-z0-9]{20,}"),
    _rule("a Google API key", "AIza", r"AIza[A-Za-z0-9_-]{35}"),
    _rule("a Google OAuth secret", "GOCSPX- ya29.", r"(?:GOCSPX-[A-Za-z0-9_-]{28}|ya29\.[A-Za-z0-9_-]{40,})"),
    _rule("an npm token", "npm_", r"npm_[A-Za-z0-9]{36}"),
    _rule("a PyPI token", "pypi-AgE", r"pypi-AgE[A-Za-z0-9_-]{50,}"),
    _rule("a Hugging Face token", "hf_", r"hf_[A-Za-z]{34}"),
    _rule("a SendGrid key", "SG.", r"SG\.[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43}"),
    _rule("a Twilio key", "SK", r"SK[0-9a-f]{32}(?![0-9A-Za-z])"),
    _rule("a DigitalOcean token", "dop_v1_ doo_v1_ dor_v1_", r"do[opr]_v1_[0-9a-f]{64}"),
    _rule("a Shopify token", "shpat_ shpca_ shppa_ shpss_", r"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}"),
    _rule("a Telegram bot token", ":AA", r"\d{8,10}:AA[A-Za-z0-9_-]{33}"),
    _rule("a Square token", "sq0atp- sq0csp-", r"sq0(?:atp|csp)-[A-Za-z0-9_-]{22,}"),
    _rule("a Databricks token", "dapi", r"dapi[0-9a-f]{32}"),
    _rule("a Vault token", "hvs. hvb.", r"hv[sb]\.[A-Za-z0-9_-]{24,}"),
    _rule("an age key", "AGE-SECRET-KEY-1", r"AGE-SECRET-KEY-1[A-Z0-9]{58}"),
    _rule("a Linear key", "lin_api_", r"lin_api_[A-Za-z0-9]{40}"),
    _rule("an Atlassian token", "ATATT3", r"ATATT3[A-Za-z0-9_=-]{100,}"),
    _rule("a Docker token", "dckr_pat_", r"dckr_pat_[A-Za-z0-9_-]{27}"),
    _rule("a Grafana token", "glsa_", r"glsa_[A-Za-z0-9]{32}_[0-9a-fA-F]{8}"),
    _rule("a Doppler token", "dp.pt.", r"dp\.pt\.[A-Za-z0-9]{43}"),
    _rule("an Azure storage key", "AccountKey=", r"AccountKey=[A-Za-z0-9+/]{86}=="),
    _rule("a JSON web token", "eyJ", r"eyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{20,}"),
    # A header alone is what programs compare with; a key has a body. `\\n` is a line end inside of a string.
    _rule("a private key", "PRIVATE KEY",
          r"-----BEGIN[ A-Z0-9]{0,40}PRIVATE KEY(?: BLOCK)?-----"
          r"(?:(?!-----END)(?:[A-Za-z0-9+/=:,. \t\r\n-]|\\n)){64,}"
          r"(?:-----END[ A-Z0-9]{0,40}PRIVATE KEY(?: BLOCK)?-----)?"),
    _rule("a password in a URL", "://", r"(?<=://)[^/\s:@\"\\]{1,100}:[^/\s@\"\\]{1,200}(?=@)", stops=False),
    _rule("a bearer token", "earer ", r"(?<=[Bb]earer )[A-Za-z0-9._~+/=-]{12,}", stops=False),
)  # fmt: skip


def find_secret_values(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the values of variables that hold secrets by their name, longest first; paths and addresses are none."""
    values = {value for name, value in environ.items() if _is_secret(name) and _is_value(value)}
    return tuple(sorted(values, key=lambda value: (-len(value), value)))


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
    places = {(start, FROM_ENVIRONMENT) for start, _ in _find_values(text, environ_values)}
    places |= {(start, rule.kind) for rule in _RULES if rule.stops for start, _ in _match(rule, text)}
    if not places:
        return ()
    starts = [0, *(match.end() for match in re.finditer("\n", text))]
    found = {(bisect_right(starts, start), kind) for start, kind in places}
    lines = text.split("\n")
    return tuple(
        Suspect(line=line, kind=kind, allowed=kind != FROM_ENVIRONMENT and ALLOW in lines[line - 1])
        for line, kind in sorted(found)
    )


def redact(text: str, *, environ_values: Iterable[str] = ()) -> str:
    """Return the text with everything that looks like a secret replaced; inside JSON the result is JSON again."""
    return _replace(
        text, {*_find_values(text, environ_values), *(span for rule in _RULES for span in _match(rule, text))}
    )


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
    """Find values as they are, and as they are written inside of a JSON string."""
    for value in values:
        for form in {value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]}:
            at = text.find(form)
            while at >= 0:
                yield at, at + len(form)
                at = text.find(form, at + len(form))


def _match(rule: _Rule, text: str) -> Iterator[tuple[int, int]]:
    if any(anchor in text for anchor in rule.anchors):
        for match in rule.pattern.finditer(text):
            if len(set(match[0])) >= _MIN_DISTINCT + len(set(rule.anchors[0])) // 2:
                yield match.span()
