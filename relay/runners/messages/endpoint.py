"""Kinds of endpoints: whose keys, addresses and paths they have; and the way of a run to one of them.

Nothing here is slow to import: the HTTP client is in `transport.py`, Anthropic's SDK in `client.py`.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from relay.base.errors import RunnerError
from relay.base.redaction import MIN_VALUE_CHARS
from relay.base.values import dataclass
from relay.runners.messages.credentials import Credential

FRAMES = "application/vnd.amazon.eventstream"
"""Content type of an answer in frames of AWS."""
_LEAST_SECRET_CHARS = 4
"""Shortest part of the address that is hidden; shorter strings occur in ordinary words."""
_VERSION = "2026-10-21"
EDITING_BETA = "context-management-2025-06-27"
"""The beta by which the API edits a context. Source: anthropic 2.12.0, `types/anthropic_beta_param.py`."""
MANTLE_MODEL = re.compile(r"anthropic\.(?!\S*-v\d+(?::\d+)?$)[a-z0-9-]+")
"""A model at Bedrock's Messages API, called Mantle; every other one is at its older runtime."""
_SEGMENT_CHARS = "!$&'()*+,;=:@"
"""Characters that RFC 3986 allows in a path segment, besides letters, digits and ``-._~``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A kind of endpoint: the form of its address, key and paths."""

    name: str
    keys: tuple[str, ...]
    """Variables that may hold the key, the preferred first."""
    base: str
    """The variable that holds the address."""
    address: str = ""
    """Default address; empty where it has a region, a resource or a project in it."""
    root: str = ""
    """Prefix of paths that the address ends with; empty if paths have all of it."""
    dropped: str = ""
    """Ending that an address may have although its paths begin with it."""
    key_header: tuple[str, str] = ("authorization", "Bearer ")
    """Name of the header, and what stands before the key."""
    headers: tuple[tuple[str, str], ...] = ()
    """Headers of every request."""
    models: str = "/v1/models/"
    """Path of the descriptions of models."""
    lists_models: bool = True
    """Whether it has the Models API."""
    names_model: bool = False
    """Whether the model is part of a request's address."""


ANTHROPIC = Family(
    name="anthropic",
    keys=("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
    base="ANTHROPIC_BASE_URL",
    address="https://api.anthropic.com",
    dropped="/v1",
    headers=(("anthropic-version", _VERSION),),
)
OPENAI = Family(
    name="openai", keys=("OPENAI_API_KEY",), base="OPENAI_BASE_URL", address="https://api.openai.com/v1", root="/v1"
)
GEMINI = Family(
    name="gemini",
    keys=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    base="GOOGLE_GEMINI_BASE_URL",
    address="https://generativelanguage.googleapis.com",
    key_header=("x-goog-api-key", ""),
    models="/v1beta/models/",
)
FAMILIES = (ANTHROPIC, OPENAI, GEMINI)
BEDROCK = Family(
    name="bedrock",
    keys=("AWS_BEARER_TOKEN_BEDROCK", "ANTHROPIC_AWS_API_KEY"),
    base="ANTHROPIC_BEDROCK_MANTLE_BASE_URL",
    dropped="/v1",
    lists_models=False,
    names_model=True,
)
AWS = Family(name="aws", keys=("ANTHROPIC_AWS_API_KEY",), base="ANTHROPIC_AWS_BASE_URL", dropped="/v1")
VERTEX = Family(name="vertex", keys=(), base="ANTHROPIC_VERTEX_BASE_URL", lists_models=False, names_model=True)
FOUNDRY = Family(
    name="foundry",
    keys=("ANTHROPIC_FOUNDRY_API_KEY",),
    base="ANTHROPIC_FOUNDRY_BASE_URL",
    dropped="/v1",
    lists_models=False,
)
CLOUDS = (BEDROCK, AWS, VERTEX, FOUNDRY)
"""Kinds of endpoints with Claude whose address has a region, a resource or a project in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """The way to an endpoint."""

    family: Family = ANTHROPIC
    credential: Credential | None = None
    """Proves who asks; None for a key of the environment."""
    needs_sdk: bool = False
    """Whether only Anthropic's SDK knows this way: a cloud, or a login of the SDK's own."""
    find_place: Callable[[], Mapping[str, Any]] = dict
    """Loads what is slow, and returns the arguments of the SDK's client that say where to ask: region, project …"""


PLAIN = Way()


def find_own_secrets(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the secrets of the way to the endpoint, longest first: keys, and parts of the address."""
    lines = environ.get("ANTHROPIC_CUSTOM_HEADERS", "").split("\n")
    keys = {line.partition(":")[2].strip().removeprefix("Bearer ") for line in lines}
    keys |= {environ.get(name, "") for family in (*FAMILIES, *CLOUDS) for name in family.keys}
    values = {key for key in keys if len(key) >= MIN_VALUE_CHARS}
    for family in (*FAMILIES, *CLOUDS):
        with suppress(ValueError):
            address = urlsplit(environ.get(family.base, ""))
            user, at, _ = address.netloc.rpartition("@")
            password = user.partition(":")[2]
            values |= {user if at else "", password, unquote(password), address.query, address.fragment}
            values |= {value for _, value in parse_qsl(address.query)}
    return tuple(sorted((value for value in values if len(value) >= _LEAST_SECRET_CHARS), key=len, reverse=True))


def get_key_name(environ: Mapping[str, str], families: Sequence[Family] = (ANTHROPIC,)) -> str:
    """Return the variable that holds the key, before anything starts; cheap, and imports nothing.

    Args:
        environ: The environment.
        families: The kinds of endpoints whose keys are accepted.

    Raises:
        RunnerError: None of their variables is set, or its value cannot be a key.
    """
    names = [name for family in families for name in family.keys]
    name = next((name for name in names if environ.get(name)), None)
    if name is None:
        unset = f"neither {' nor '.join(names)} is set" if len(names) > 1 else f"{names[0]} is not set"
        raise RunnerError(
            f"no API key: {unset}",
            hint=f"export {names[0]}=…; to see relay work without one, run `relay demo`",
        )
    # An HTTP client would refuse such a key too, and print it.
    if not environ[name].isascii() or not environ[name].isprintable() or " " in environ[name]:
        raise RunnerError(
            f"{name} holds characters that no key has: a blank, a line break, a quotation mark from another alphabet",
            hint=f"export {name}=… again, without anything around it",
        )
    return name


def find_base(environ: Mapping[str, str], family: Family) -> str:
    """Return the address that the environment names; empty if it names none."""
    return environ.get(family.base, "").rstrip("/").removesuffix(family.dropped)


def quote_model(model: str, family: Family) -> str:
    """Return the path of a model's description."""
    return f"{family.models.removeprefix(family.root)}{quote(model, safe=_SEGMENT_CHARS)}"


def read_custom_headers(environ: Mapping[str, str], family: Family) -> dict[str, str]:
    """Return the user's own headers, a ``Name: value`` on each line; they are for Claude's endpoints."""
    lines = environ.get("ANTHROPIC_CUSTOM_HEADERS", "").split("\n") if family in {ANTHROPIC, *CLOUDS} else ()
    pairs = (line.partition(":") for line in lines)
    return {name.strip(): value.strip() for name, colon, value in pairs if colon}
