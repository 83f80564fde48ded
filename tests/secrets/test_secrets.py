"""Secrets are found by their form and by their value, placeholders and prose are not, and redaction keeps JSON whole.

The tokens are put together here, so that no scanner takes this file for a leak.
"""

import json
import random
import string
import subprocess
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.base.redaction import (
    REDACTED,
    Rule,
    Suspect,
    find_secret_values,
    find_secrets,
    redact,
)
from relay.git.repository import open_repo
from relay.run.commit.disclosures import find_disclosures
from tests.effort import take_each

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
    "a Google API key": "AI" + "za" + some(WORD + "_-", 35),
    "a Google OAuth secret": "GOC" + "SPX-" + some(WORD, 28),
    "a PyPI token": "pypi-" + "AgEIcHlwaS5vcmc" + some(WORD, 70),
    "a Twilio key": "S" + "K" + some(HEX, 32),
    "a Telegram bot token": "1234567890" + ":AA" + some(WORD, 33),
    "a Square token": "sq0" + "atp-" + some(WORD, 22),
    "a Vault token": "hv" + "s." + some(WORD, 24),
    "an age key": "AGE-SECRET-" + "KEY-1" + some(string.ascii_uppercase + string.digits, 58),
    "an Atlassian token": "ATA" + "TT3" + some(WORD, 180),
    "a Docker token": "dckr" + "_pat_" + some(WORD, 27),
    "an Azure storage key": "Account" + "Key=" + some(WORD, 86) + "==",
    "a JSON web token": "ey" + "J" + some(WORD, 30) + ".ey" + "J" + some(WORD, 60) + "." + some(WORD, 43),
    "a private key": pem("RSA "),
}


UPPER = string.ascii_uppercase + string.digits
LOWER = string.ascii_lowercase + string.digits
OTHERS = {
    "Stripe": "sk_" + "live_" + some(WORD, 24),
    "Hugging Face": "h" + "f_" + some(string.ascii_letters, 34),
    "DigitalOcean": "dop" + "_v1_" + some(HEX, 64),
    "Databricks": "da" + "pi" + some(HEX, 32),
    "Grafana": "gl" + "sa_" + some(WORD, 32) + "_" + some(HEX, 8),
    "Anthropic admin": "sk-ant-" + "admin01-" + some(WORD, 93) + "AA",
    "OpenAI old": "sk-" + some(WORD, 20) + "T3Blbk" + "FJ" + some(WORD, 20),
    "xAI": "xa" + "i-" + some(WORD, 80),
    "Perplexity": "pp" + "lx-" + some(WORD, 48),
    "Pinecone": "pc" + "sk_" + some(WORD, 60),
    "Bitbucket": "AT" + "BB" + some(WORD, 32),
    "GitHub app": "gh" + "s_" + some(WORD, 36),
    "GitLab flag": "glf" + "fct-" + some(WORD, 20),
    "GitLab agent": "glag" + "ent-" + some(WORD, 50),
    "Discord bot": "MT" + some(WORD, 24) + "." + some(WORD, 6) + "." + some(WORD, 38),
    "webhook": "whs" + "ec_" + some(WORD, 32),
    "Mailgun": "ke" + "y-" + some(HEX, 32),
    "Heroku": "HRKU" + "-AA" + some(WORD, 58),
    "Vercel blob": "vercel_" + "blob_rw_" + some(WORD, 40),
    "Supabase secret": "sb_" + "secret_" + some(WORD, 31),
    "PlanetScale": "psc" + "ale_tkn_" + some(WORD, 43),
    "Fly 1": "fm" + "1r_" + some(WORD, 120),
    "Resend": "r" + "e_" + some(WORD, 8) + "_" + some(WORD, 24),
    "Notion old": "sec" + "ret_" + some(WORD, 43),
    "Airtable": "pa" + "t" + some(WORD, 14) + "." + some(HEX, 64),
    "Sentry user": "sntr" + "yu_" + some(HEX, 64),
    "New Relic": "NR" + "AK-" + some(UPPER, 27),
    "Terraform": some(WORD, 14) + ".atlas" + "v1." + some(WORD, 67),
    "1Password": "op" + "s_ey" + "J" + some(WORD, 300),
    "Azure": some(WORD, 3) + "8Q" + "~" + some(WORD, 34),
    "Docker organisation": "dckr" + "_oat_" + some(WORD, 32),
    "Slack app": "xa" + "pp-1-A0" + some(UPPER, 9) + "-1234567890123-" + some(HEX, 64),
    "Slack configuration": "xo" + "xe.xo" + "xp-1-" + some(UPPER, 165),
    "Square": "sq0" + "csp-" + some(WORD, 43),
    "Shopify secret": "shp" + "ss_" + some(HEX, 32),
    "Google OAuth access": "ya" + "29." + some(WORD, 60),
    "Alibaba": "LT" + "AI" + some(WORD, 20),
    "Clojars": "CLOJ" + "ARS_" + some(LOWER, 60),
    "EasyPost": "EZ" + "AK" + some(WORD, 54),
    "Harness": "pa" + "t." + some(WORD, 22) + "." + some(WORD, 24) + "." + some(WORD, 20),
    "OpenShift": "sha2" + "56~" + some(WORD, 43),
    "ReadMe": "rd" + "me_" + some(LOWER, 70),
    "Shippo": "ship" + "po_live_" + some(HEX, 40),
}


def test_a_token_of_another_issuer_is_found_and_redacted():
    texts = {
        (name, text.format(token)): token for name, token in OTHERS.items() for text in ("k = '{}'\n", "f({}, 2)", "{}")
    }
    assert [row for row in texts if [found.line for found in find_secrets(row[1])] != [1]] == []
    assert [row for row, token in texts.items() if token in redact(row[1])] == []


def test_a_token_is_found_where_it_stands():
    """Also glued to something."""
    texts = {kind: f"# settings\nname = 1\nvalue = '{token}'\n" for kind, token in TOKENS.items()}
    assert [kind for kind, text in texts.items() if find_secrets(text) != (Suspect(line=3, kind=kind),)] == []
    for kind in ("a GitHub token", "an Anthropic key", "a GitLab token", "a Docker token"):
        assert [found.kind for found in find_secrets(f"x9{TOKENS[kind]}")] == [kind]


def test_a_token_is_redacted_also_inside_of_json():
    """A log and a tape are JSON: a line end stands there as a letter, and a quotation mark ends the text."""
    forms = ("before\n{}\nafter", "before\t{}\tafter", "{}", "x {}", "{}, b")
    for name, token in (TOKENS | OTHERS).items():
        for text in forms:
            shown = json.loads(redact(json.dumps({"text": text.format(token)})))["text"]
            assert shown == redact(text.format(token)) == text.format(REDACTED), (name, text)


def test_placeholders_and_prose_are_no_findings():
    for text in (
        "sk-ant-xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
        "AKIA" + "IOSFODNN7EXAMPLE",
        "ghp_" + "x" * 36,
        'if "-----BEGIN PRIVATE KEY-----" in text:',
        "postgres://user:password@localhost/db",
        "password = 'correct horse battery staple'",
        "sha256 = 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "task-SKdeadbeef, askAIzaB, mapAKIA",
        "class SK(Base): pass",
    ):
        assert find_secrets(text) == (), text


def test_a_token_has_its_bits_in_each_character_or_enough_different_ones():
    for entropy, text, is_token in (
        (3.0, "abcdefgh", True),
        (3.0, "aabcdefg", False),
        (2.0, "aabbccdd", True),
        (2.0, "aaabbccd", False),
        (0.0, "ghp_abcdef", True),
        (0.0, "ghp_abcd", True),
        (0.0, "ghp_abc", False),
    ):
        rule = Rule(kind="k", anchors=("ghp_",), pattern=".*", entropy=entropy)
        assert rule.is_token(text) is is_token, (entropy, text)


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
        "ANTHROPIC_CUSTOM_HEADERS": "x-team: relay-1",
        "TWELVE_TOKEN": "twelve-chars",
        "MY_TOKEN": "eleven-char",
        "SSH_KEY": "~/.ssh/id_ed25519",
        "SSL_KEY_FILE": "/etc/ssl/private/key.pem",
        "KEYRING": "/run/user/1000/keyring",
        "PATH": "/usr/bin:/bin-bin-bin",
    }

    assert find_secret_values(environ) == ("key-of-anthropic", "hunter2-hunter2", "x-team: relay-1", "twelve-chars")


def test_secrets_of_the_environment_are_known_by_their_login():
    environ = {
        "DATABASE_URL": "postgres://relay:correct-horse@db.example/relay",
        "MONGODB_URI": "mongodb+srv://relay:battery-staple@cluster.example",
        "SENTRY_DSN": "https://0123456789abcdef@o1.ingest.example/42",
        "AZURE_DEVOPS_EXT_PAT": "pat-pat-pat-pat",
        "NPM_AUTH": "bnBtOm5wbS1ucG0=",
        "GIT_AUTHOR_EMAIL": "somebody@example.org",
        "AUTHOR": "Somebody Else",
        "HOMEPAGE_URL": "https://relay.example/with/a/path",
        "COMPAT": "something longer",
    }

    values = find_secret_values(environ)

    assert {"correct-horse", "battery-staple", "pat-pat-pat-pat", "bnBtOm5wbS1ucG0="} <= set(values)
    assert {environ["DATABASE_URL"], environ["MONGODB_URI"], environ["SENTRY_DSN"]} <= set(values)
    assert len(values) == 7


def test_values_that_overlap_are_redacted_to_the_end_of_the_last():
    values = ("abcdefghijklMNOP", "MNOPqrstuvwxyz12", "klMNOPqr")
    for order in permutations(values):
        assert redact("<abcdefghijklMNOPqrstuvwxyz12>", environ_values=order) == "<[redacted]>"


@pytest.mark.parametrize("ascii_alone", [True, False])
def test_a_value_is_found_also_as_json_writes_it(ascii_alone):
    value = 'with "quotes", Schlüssel and\nlines'

    written = json.dumps([value, "kept"], ensure_ascii=ascii_alone)
    assert redact(written, environ_values=(value,)) == f'["{REDACTED}", "kept"]'


@given(st.text(max_size=200), st.sampled_from(sorted(TOKENS.values())), st.text(max_size=200))
def test_nothing_that_was_redacted_is_found_again(before, token, after):
    """Redaction is complete in its own terms, and JSON stays JSON."""
    line = json.dumps({"text": f"{before} {token} {after}"})

    assert find_secrets(redact(line)) == ()
    json.loads(redact(line))


@pytest.mark.parametrize(
    "text",
    take_each(
        4,
        [
            "-----BEGIN PRIVATE KEY-----" * 5_000,
            "." * 400_000,
            "eyJ" * 50_000,
            "://a:" * 40_000,
            "-----BEGIN " + "A" * 200_000,
            "-eyJ" * 100_000,
            "eyJa.eyJ" * 40_000,
            "xapp-1-" * 50_000,
            "M" * 400_000,
            "glc_" * 90_000,
            "EAAC" * 90_000,
            "sntrys_" * 50_000,
            "pat." * 90_000,
            "_-.~" * 90_000 + "q~",
        ],
    ),
)
@pytest.mark.timeout(120)
def test_hostile_texts_take_linear_time(text):
    find_secrets(text)
    redact(text)


def test_the_name_of_a_new_file_can_be_a_secret(tmp_path):
    """It is named without what it discloses."""
    token = TOKENS["a GitHub token"]
    for args in (("init", "-q"), ("config", "user.name", "T"), ("config", "user.email", "t@example.org")):
        subprocess.run(("git", *args), cwd=tmp_path, check=True)
    (tmp_path / "src").mkdir()
    (tmp_path / f"src/{token}.txt").write_text("nothing\n")
    (tmp_path / "src/value-of-the-environment").write_text("nothing\n")
    subprocess.run(("git", "add", "-A"), cwd=tmp_path, check=True)
    repo = open_repo(tmp_path)
    tree = repo.git.run("write-tree").decode().strip()
    paths = [f"src/{token}.txt", "src/value-of-the-environment"]

    found = find_disclosures(repo, None, tree, paths, ("value-of-the-environment",))

    assert [one.words for one in found] == [
        "the name src/[redacted].txt looks like it holds a GitHub token",
        "the name src/[redacted] looks like it holds the value of a secret in relay's environment",
    ]
    assert not any(one.allowed for one in found)
    assert find_disclosures(repo, tree, tree, paths, ()) == ()
