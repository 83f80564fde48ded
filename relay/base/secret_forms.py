"""The forms of secrets: relay's own rules, and those of gitleaks as data. Pure, but for the one file they are in.

Rules know tokens by the form that their issuers gave them so that scanners can find them. There is none for entropy or
for ``password = …``: on source code these are mostly wrong, and what stops a commit must not be. gitleaks' rules were
chosen and translated by ``tests/secrets/gitleaks.py``; the data file has their source and licence.

Every pattern is linear: nothing unbounded is followed by something that can fail, but where it starts at the beginning
of a run. Looking for the keywords first makes that cheap: only a rule whose keyword is there is compiled and tried.
"""

import json
import math
import re
from collections import Counter
from functools import cache
from pathlib import Path

from relay.base.values import dataclass

_MIN_DISTINCT = 6
"""A token of fewer different characters is a placeholder: ``ghp_xxxxxxxx…``."""
_MIN_KEYWORD = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One form."""

    kind: str
    """Such as ``an AWS access key``."""
    anchors: tuple[str, ...]
    """A text without any of these cannot match; looking for them costs next to nothing."""
    pattern: str
    stops: bool = True
    """False: redacted, but too common in examples to stop a commit."""
    any_case: bool = False
    """Whether the anchors are in lower case and stand for any."""
    entropy: float = 0.0
    """Bits in each character, by Shannon, that a token has at least; 0 where its different characters are counted."""

    def is_token(self, text: str) -> bool:
        """Return whether what has the form is no placeholder."""
        if self.entropy:
            counts = Counter(text).values()
            return -sum(n / len(text) * math.log2(n / len(text)) for n in counts) >= self.entropy
        return len(set(text)) >= _MIN_DISTINCT + len(set(self.anchors[0])) // 2


@cache
def compile_rule(pattern: str) -> re.Pattern[str]:
    """Compile a pattern when it is first tried: all of them would take a fifth of a second."""
    return re.compile(pattern, re.ASCII)


@cache
def load_foreign() -> tuple[Rule, ...]:
    """Return the rules of others, for what relay's own do not know."""
    data = json.loads(Path(__file__).with_name("gitleaks.json").read_text(encoding="utf-8"))
    return tuple(_load(rule) for rule in data["rules"])


def _load(rule: dict[str, str | float | list[str]]) -> Rule:
    words = rule["keywords"]
    return Rule(
        kind=f"a secret ({rule['id']})",
        anchors=tuple(words) if isinstance(words, list) else (),
        pattern=str(rule["pattern"]),
        any_case=True,
        entropy=float(str(rule["entropy"])),
    )


def _rule(kind: str, anchors: str, pattern: str, *, stops: bool = True) -> Rule:
    names = tuple(anchors.split())
    # What is distinct by itself may stand behind a letter or a digit; else also behind a line end inside of a string.
    distinct = stops and all(len(name) >= _MIN_KEYWORD and re.search(r"[_.:-]", name) for name in names)
    # Its first character first: that of most places in a text is another.
    first = _find_first(pattern)
    bounded = rf"{first}(?:(?<![A-Za-z0-9]{first})|(?<=\\[nrt]{first})){pattern[len(first) :]}"
    return Rule(kind=kind, anchors=names, pattern=pattern if distinct else bounded, stops=stops)


def _find_first(pattern: str) -> str:
    """Return what a pattern has for the first character, one of its own or a set; empty where it is neither."""
    end = pattern.find("]") + 1 if pattern.startswith("[") else int(pattern[0].isalnum() or pattern[0] == "-")
    return "" if pattern[end] in "{+*?" else pattern[:end]


OWN = (
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
    _rule("a Slack token", "xapp-", r"xapp-\d-[A-Z0-9]{1,40}-\d{1,40}-[a-z0-9]{20,}"),
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
    _rule("a Docker token", "dckr_pat_ dckr_oat_", r"dckr_[po]at_[A-Za-z0-9_-]{27}"),
    _rule("a Grafana token", "glsa_", r"glsa_[A-Za-z0-9]{32}_[0-9a-fA-F]{8}"),
    _rule("a Doppler token", "dp.pt.", r"dp\.pt\.[A-Za-z0-9]{43}"),
    _rule("an Azure storage key", "AccountKey=", r"AccountKey=[A-Za-z0-9+/]{86}=="),
    # From the beginning of a run only: `-eyJ-eyJ…` would be read to its end from each of them.
    _rule("a JSON web token", "eyJ", r"(?:(?<![\w-])|(?<=\\[nrt]))eyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]{20,}"),
    # A header alone is what programs compare with; a key has a body. `\\n` is a line end inside of a string.
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
    _rule("a Bedrock key", "ABSK", r"ABSK[A-Za-z0-9+/]{100,}"),
    _rule("a Discord webhook", "/api/webhooks/",
          r"https://[a-z.]{0,20}discord(?:app)?\.com/api/webhooks/\d{17,20}/[\w-]{60,}"),
    _rule("a Discord bot token", ".", r"[MNO][\w-]{23,27}\.[\w-]{6}\.[\w-]{27,40}(?![\w-])"),
    _rule("a webhook secret", "whsec_", r"whsec_[A-Za-z0-9+/=]{24,}"),
    _rule("a Mailgun key", "key-", r"key-[0-9a-f]{32}(?![0-9A-Za-z])"),
    _rule("a Vercel token", "vcp_ vck_ vca_ vci_ vcr_", r"vc[pkair]_[A-Za-z0-9]{24,}"),
    _rule("a Vercel token", "vercel_blob_rw_", r"vercel_blob_rw_[A-Za-z0-9_]{24,}"),
    _rule("a Supabase key", "sbp_ sb_secret_", r"sb(?:p_(?:v0_)?[0-9a-f]{40}|_secret_[A-Za-z0-9_-]{20,})"),
    _rule("a Neon key", "napi_", r"napi_[A-Za-z0-9]{40,}"),
    _rule("a PlanetScale token", "pscale_", r"pscale_(?:tkn|pw|oauth)_[\w=.-]{32,64}"),
    _rule("a Fly token", "fm1 fm2_", r"fm(?:1[ar]?|2)_[A-Za-z0-9+/=_-]{60,}"),
    _rule("a Resend key", "re_", r"re_[A-Za-z0-9]{8}_[A-Za-z0-9]{24}(?![A-Za-z0-9])"),
    _rule("a Notion token", "ntn_ secret_", r"(?:ntn_\d{11}[A-Za-z0-9]{35}|secret_[A-Za-z0-9]{43}(?![A-Za-z0-9_]))"),
    _rule("a Figma token", "figd_ figo_ figu_ figdr_ figor_ figur_", r"fig[dou]r?_[A-Za-z0-9_-]{40,}"),
    _rule("an Airtable token", "pat", r"pat[A-Za-z0-9]{14}\.[0-9a-f]{64}"),
    _rule("a Sentry token", "sntrys_ sntryu_", r"sntry(?:u_[0-9a-f]{64}|s_[A-Za-z0-9+/=_]{60,})"),
    _rule("a New Relic key", "NRAK- NRII- NRJS-", r"NR(?:AK|II|JS)-[A-Za-z0-9_-]{19,40}"),
    _rule("a Tailscale key", "tskey-", r"tskey-[a-z]{3,12}-[A-Za-z0-9]{4,40}-[A-Za-z0-9]{20,}"),
    _rule("a 1Password token", "ops_eyJ", r"ops_eyJ[A-Za-z0-9+/=_-]{200,}"),
    _rule("a Sourcegraph token", "sgp_", r"sgp_(?:[0-9a-f]{16}_|local_)?[0-9a-f]{40}"),
    _rule("a password in a URL", "://", r"(?<=://)[^/\s:@\"\\]{1,100}:[^/\s@\"\\]{1,200}(?=@)", stops=False),
    _rule("a bearer token", "earer ", r"(?<=[Bb]earer )[A-Za-z0-9._~+/=-]{12,}", stops=False),
)  # fmt: skip
