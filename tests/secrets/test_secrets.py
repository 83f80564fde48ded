"""Secrets are found by their form and by their value, placeholders and prose are not, and redaction keeps JSON whole.

The tokens are put together here, so that no scanner takes this file for a leak.
"""

import json
import random
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.secrets.patterns import REDACTED, Suspect, find_secret_values, find_secrets, redact

WORD = string.ascii_letters + string.digits
HEX = "0123456789abcdef"


def some(chars, count):
    return "".join(random.Random(f"{chars}{count}").choices(chars, k=count))


def pem(kind):
    body = "\n".join(some(WORD + "+/", 64) for _ in range(6))
    return f"-----BEGIN {kind}PRIVATE KEY-----\n{body}\n-----END {kind}PRIVATE KEY-----"


TOKENS = {
    "an Anthropic key": "sk-ant-" + "api03-" + some(WORD + "_-", 93),
    "an OpenAI key": "sk-" + "proj-" + some(WORD + "_-", 74),
    "an OpenRouter key": "sk-or-" + "v1-" + some(HEX, 64),
    "an AWS access key": "AK" + "IA" + some("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", 16),
    "a GitHub token": "gh" + "p_" + some(WORD, 36),
    "a GitLab token": "gl" + "pat-" + some(WORD, 20),
    "a Slack token": "xo" + "xb-" + "123456789012-123456789012-" + some(WORD, 24),
    "a Slack webhook": "https://hooks." + "slack.com/services/" + some(WORD, 44),
    "a Stripe key": "sk_" + "live_" + some(WORD, 24),
    "a Google API key": "AI" + "za" + some(WORD + "_-", 35),
    "a Google OAuth secret": "GOC" + "SPX-" + some(WORD, 28),
    "an npm token": "np" + "m_" + some(WORD, 36),
    "a PyPI token": "pypi-" + "AgEIcHlwaS5vcmc" + some(WORD, 70),
    "a Hugging Face token": "h" + "f_" + some(string.ascii_letters, 34),
    "a SendGrid key": "S" + "G." + some(WORD, 22) + "." + some(WORD, 43),
    "a Twilio key": "S" + "K" + some(HEX, 32),
    "a DigitalOcean token": "dop" + "_v1_" + some(HEX, 64),
    "a Shopify token": "shp" + "at_" + some(HEX, 32),
    "a Telegram bot token": "1234567890" + ":AA" + some(WORD, 33),
    "a Square token": "sq0" + "atp-" + some(WORD, 22),
    "a Databricks token": "da" + "pi" + some(HEX, 32),
    "a Vault token": "hv" + "s." + some(WORD, 24),
    "an age key": "AGE-SECRET-" + "KEY-1" + some(string.ascii_uppercase + string.digits, 58),
    "a Linear key": "lin_" + "api_" + some(WORD, 40),
    "an Atlassian token": "ATA" + "TT3" + some(WORD, 180),
    "a Docker token": "dckr" + "_pat_" + some(WORD, 27),
    "a Grafana token": "gl" + "sa_" + some(WORD, 32) + "_" + some(HEX, 8),
    "a Doppler token": "dp." + "pt." + some(WORD, 43),
    "an Azure storage key": "Account" + "Key=" + some(WORD, 86) + "==",
    "a JSON web token": "ey" + "J" + some(WORD, 30) + ".ey" + "J" + some(WORD, 60) + "." + some(WORD, 43),
    "a private key": pem("RSA "),
}


@pytest.mark.parametrize("kind", TOKENS)
def test_a_token_is_found_where_it_stands(kind):
    text = f"# settings\nname = 1\nvalue = '{TOKENS[kind]}'\n"

    assert find_secrets(text) == (Suspect(line=3, kind=kind),)


@pytest.mark.parametrize("kind", TOKENS)
def test_a_token_is_redacted_also_inside_of_json(kind):
    text = f"before\n{TOKENS[kind]}\nafter"

    shown = json.loads(redact(json.dumps({"text": text})))["text"]

    assert TOKENS[kind] not in shown
    assert TOKENS[kind][-12:] not in shown.replace("-----", "")
    assert shown.startswith("before\n")
    assert shown.endswith("after")
    assert redact(text) == f"before\n{REDACTED}\nafter"


@pytest.mark.parametrize(
    "text",
    [
        "sk-ant-xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
        "AKIA" + "IOSFODNN7EXAMPLE",
        "ghp_" + "x" * 36,
        'if "-----BEGIN PRIVATE KEY-----" in text:',
        "postgres://user:password@localhost/db",
        "password = 'correct horse battery staple'",
        "sha256 = 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "task-SKdeadbeef, askAIzaB, mapAKIA",
        "class SK(Base): pass",
    ],
)
def test_placeholders_and_prose_are_no_findings(text):
    assert find_secrets(text) == ()


def test_a_line_can_be_allowed_by_a_person_but_not_a_value_of_the_environment():
    value = "correct-horse-battery"
    allowed = f"{TOKENS['a GitHub token']}  # relay: allow secret"

    assert [found.allowed for found in find_secrets(allowed)] == [True]
    found = find_secrets(f"x\n{value} # relay: allow secret", environ_values=(value,))
    assert [(one.line, one.allowed) for one in found] == [(2, False)]


def test_secrets_of_the_environment_are_known_by_their_names():
    environ = {
        "ANTHROPIC_API_KEY": "key-of-anthropic",
        "ANTHROPIC_BASE_URL": "https://gateway.example",
        "ANTHROPIC_MODEL": "claude-opus-5-5",
        "DB_PASSWORD": "hunter2-hunter2",
        "MY_TOKEN": "short",
        "SSL_KEY_FILE": "/etc/ssl/private/key.pem",
        "KEYRING": "/run/user/1000/keyring",
        "PATH": "/usr/bin:/bin-bin-bin",
    }

    assert find_secret_values(environ) == ("key-of-anthropic", "hunter2-hunter2")


def test_a_value_is_found_also_as_json_writes_it():
    value = 'with "quotes" and\nlines'

    assert redact(json.dumps([value, "kept"]), environ_values=(value,)) == f'["{REDACTED}", "kept"]'


@given(st.text(max_size=200), st.sampled_from(sorted(TOKENS.values())), st.text(max_size=200))
def test_nothing_that_was_redacted_is_found_again(before, token, after):
    """Redaction is complete in its own terms, and JSON stays JSON."""
    line = json.dumps({"text": f"{before} {token} {after}"})

    assert find_secrets(redact(line)) == ()
    json.loads(redact(line))


@pytest.mark.parametrize(
    "text", ["-----BEGIN PRIVATE KEY-----" * 5_000, "eyJ" * 50_000, "://a:" * 40_000, "-----BEGIN " + "A" * 200_000]
)
@pytest.mark.timeout(120)
def test_hostile_texts_take_linear_time(text):
    find_secrets(text)
    redact(text)
