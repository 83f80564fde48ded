"""Ways to Claude that need more than a fixed key: a login of Anthropic's SDK, the user's command, and clouds.

What is missing is said here before anything slow is imported, with the command that gets it. The extra `cloud` brings
botocore and google-auth, which find and renew the clouds' own logins; `client.py` asks with what they find.
"""

import os
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from relay.base.errors import ConfigError
from relay.base.hints import advise_extra
from relay.config import Settings
from relay.runners.messages.credentials import Credential, CredentialError, KeyCommand, Proof, find_work_trees
from relay.runners.messages.endpoint import (
    ANTHROPIC,
    AWS,
    BEDROCK,
    FOUNDRY,
    MANTLE_MODEL,
    VERTEX,
    Way,
    find_base,
    get_key_name,
)

if TYPE_CHECKING:
    from relay.runners.messages.client import Login

_FAMILIES = {family.name: family for family in (ANTHROPIC, BEDROCK, VERTEX, FOUNDRY, AWS)}
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9:._-]{0,98}[A-Za-z0-9])?")
"""A region, a resource or a project: it becomes part of an address."""
_AWS_REGION = ("AWS_REGION", "AWS_DEFAULT_REGION")
_AWS_WORKSPACE = "ANTHROPIC_AWS_WORKSPACE_ID"
_RUNTIME = "ANTHROPIC_BEDROCK_BASE_URL"
_BEDROCK_MODEL = re.compile(r"(?:[a-z-]{2,8}\.)?anthropic\.\S+|arn:aws[a-z-]*:bedrock:\S+")
_GOOGLE_REGION, _GOOGLE_PROJECT = "CLOUD_ML_REGION", "ANTHROPIC_VERTEX_PROJECT_ID"
_FOUNDRY_RESOURCE = "ANTHROPIC_FOUNDRY_RESOURCE"
_GOOGLE_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_AWS_SDK, _GOOGLE_SDK = ("boto3",), ("google.auth", "requests")
_AWS_ADVICE = "aws sso login, or aws configure; AWS_PROFILE chooses a profile"
_GOOGLE_ADVICE = "gcloud auth application-default login"
_LOGIN_ADVICE = "ant auth login; ANTHROPIC_PROFILE chooses a profile"
_SHOWN_CHARS = 300


def find_way(settings: Settings, environ: Mapping[str, str]) -> Way:
    """Return the way of relay's own loop to its endpoint; sends nothing, and loads nothing slow.

    Raises:
        RunnerError: A key, a region or a package is missing, as far as that can be seen at once.
        ConfigError: The settings do not go together.
    """
    family = _FAMILIES[settings.provider]
    if family is not ANTHROPIC:
        _require_fit(settings, environ)
    is_set = any(environ.get(name) for name in family.keys)
    command = None
    if settings.key_command and not is_set:
        apart = [Path(place).expanduser().resolve() for place in settings.paths.write]
        program = KeyCommand(settings.key_command, environ, (*find_work_trees(Path.cwd()), *apart))
        program.require()
        command = Credential(program.name, program.fetch, advice=program.advice)
    if is_set:
        get_key_name(environ, (family,))
    match settings.provider:
        case "bedrock" | "aws":
            return _find_aws(settings, environ, command, is_set=is_set)
        case "vertex":
            return _find_vertex(environ, command)
        case "foundry":
            return _find_foundry(environ, command, is_set=is_set)
        case _:
            return Way() if is_set else Way(credential=command) if command else _find_login(environ)


def _require_fit(settings: Settings, environ: Mapping[str, str]) -> None:
    where = settings.origins.get("provider", "provider")
    if environ.get(ANTHROPIC.base):
        raise ConfigError(
            f"{where}: provider = {settings.provider} does not ask {ANTHROPIC.base}, which is set",
            hint=f"unset {ANTHROPIC.base}, or export RELAY_PROVIDER=anthropic to ask that address",
        )
    if settings.provider == "bedrock" and not _BEDROCK_MODEL.fullmatch(settings.model):
        raise ConfigError(
            f"{settings.origins.get('model', 'model')}: model: found {settings.model!r}; allowed with provider = "
            "bedrock: anthropic.NAME, us.anthropic.NAME-v1:0, global.anthropic.NAME, or the ARN of a profile",
            hint="aws bedrock list-inference-profiles names those of your account",
        )


def _get_name(environ: Mapping[str, str], *variables: str, what: str) -> str:
    """Return the first of some variables.

    Raises:
        CredentialError: None is set, or its value cannot be part of an address.
    """
    variable = next((name for name in variables if environ.get(name)), "")
    if not variable:
        raise CredentialError(f"{what} is not known: {variables[0]} is not set", hint=f"export {variables[0]}=…")
    if not _NAME.fullmatch(environ[variable]):
        raise CredentialError(
            f"{variable}: found {environ[variable]!r}; allowed: letters, digits, and . : _ - between them",
            hint=f"export {variable}=… again",
        )
    return environ[variable]


def _require_extra(what: str, modules: tuple[str, ...]) -> None:
    """Raise CredentialError if a package of the extra is missing; imports none of them."""
    for module in modules:
        with suppress(ModuleNotFoundError):  # of the package around it
            if find_spec(module) is not None:
                continue
        raise CredentialError(f"{what} needs packages that are not installed beside relay", hint=advise_extra("cloud"))


def _find_foundry(environ: Mapping[str, str], command: Credential | None, *, is_set: bool) -> Way:
    if command is None and not is_set:
        raise CredentialError(
            f"no key for Foundry: {FOUNDRY.keys[0]} is not set, and neither is key_command",
            hint=f"export {FOUNDRY.keys[0]}=…; relay init --provider foundry shows how to use az login",
        )
    base = find_base(environ, FOUNDRY)
    place = {"base_url": base} if base else {"resource": _get_name(environ, _FOUNDRY_RESOURCE, what="the resource")}
    return Way(family=FOUNDRY, credential=command, needs_sdk=True, find_place=lambda: place)


# Google


def _find_vertex(environ: Mapping[str, str], command: Credential | None) -> Way:
    region = _get_name(environ, _GOOGLE_REGION, what="the region")
    if command is None:
        _require_extra("Google's login", _GOOGLE_SDK)
    is_named = command is not None or bool(environ.get(_GOOGLE_PROJECT))
    login = _GoogleLogin(_get_name(environ, _GOOGLE_PROJECT, what="the project") if is_named else "")

    def find_place() -> Mapping[str, Any]:
        base = find_base(environ, VERTEX) or None
        return {"base_url": base, "region": region, "project_id": login.get_project()}

    credential = command or Credential("provider = vertex", login.fetch, advice=_GOOGLE_ADVICE)
    return Way(family=VERTEX, credential=credential, needs_sdk=True, find_place=find_place)


class _GoogleLogin:
    """Application Default Credentials. Mutable: learns the project, and keeps what it found until that ends.

    Args:
        project: Empty to take that of the login.
    """

    def __init__(self, project: str) -> None:
        self._project = project
        self._found: Any = None

    def get_project(self) -> str:
        """Return the project; look it up in the login first where nobody names it."""
        if not self._project:
            self.fetch(fresh=False)
        return self._project

    def fetch(self, fresh: bool) -> Proof:  # noqa: FBT001  # as every fetch
        """Return a token; read the login anew where there is none, it ends, or another one is wanted.

        Raises:
            CredentialError: There is no login, Google refuses it or is not reached, or it has no project.
        """
        if fresh or self._found is None or self._found.expired:
            self._found, self._project = self._load()
        found = self._found
        account = getattr(found, "service_account_email", "") or getattr(found, "account", "")
        where = os.environ.get("GOOGLE_APPLICATION_CREDENTIALS") or type(found).__module__
        words = f"Google's login{f' of {account}' if account else ''} (project {self._project}, from {where})"
        return Proof(value=str(found.token), secrets=(str(found.token),), words=words)

    def _load(self) -> tuple[Any, str]:
        import google.auth
        from google.auth.exceptions import GoogleAuthError, TransportError
        from google.auth.transport.requests import Request

        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of quotas: they would go through the view
                found, project = google.auth.default(scopes=[_GOOGLE_SCOPE])
                cast("Any", found).refresh(Request())
        except (GoogleAuthError, ValueError) as error:
            passes = isinstance(error, TransportError) or bool(getattr(error, "retryable", False))
            words = " ".join(str(error.args[0] if error.args else error).split())[:_SHOWN_CHARS]
            raise CredentialError(f"Google's login: {words}", hint=_GOOGLE_ADVICE, passes=passes) from None
        named = {_GOOGLE_PROJECT: self._project or project or ""}
        return found, _get_name(named, _GOOGLE_PROJECT, what="the project, which Google's login does not name,")


# AWS


def _find_aws(settings: Settings, environ: Mapping[str, str], command: Credential | None, *, is_set: bool) -> Way:
    family = _FAMILIES[settings.provider]
    login = None if is_set or command else _AwsLogin()
    is_framed = family is BEDROCK and not MANTLE_MODEL.fullmatch(settings.model)
    if login or is_framed:
        what = "AWS's login" if login else f"{settings.model}, a model of Bedrock's older runtime,"
        _require_extra(what, _AWS_SDK)
    base, runtime = find_base(environ, family) or None, environ.get(_RUNTIME, "").rstrip("/") or None
    if not login and not (runtime if is_framed else base):
        _get_name(environ, *_AWS_REGION, what="the region")  # one that is missing is seen now
    more: dict[str, Any] = {"runtime_url": runtime}
    if family is AWS:
        more = {"workspace_id": _get_name(environ, _AWS_WORKSPACE, what="the workspace")}

    def find_place() -> Mapping[str, Any]:
        named = any(environ.get(name) for name in _AWS_REGION)
        region = _get_name(environ, *_AWS_REGION, what="the region") if named else login.get_region() if login else ""
        return {"base_url": base, "aws_region": region, **more}

    own = Credential(f"provider = {family.name}", login.fetch, advice=_AWS_ADVICE) if login else command
    return Way(family=family, credential=own, needs_sdk=True, find_place=find_place)


class _AwsLogin:
    """AWS's own credentials, as boto3 finds them in the process's own environment. Mutable: botocore renews them."""

    def __init__(self) -> None:
        self._session: Any = None
        self._found: Any = None

    def get_region(self) -> str:
        """Return the region of the profile.

        Raises:
            CredentialError: It names none, or is not there.
        """
        with _explaining_aws():
            self._open()
        region = {_AWS_REGION[0]: self._session.region_name or ""}
        return _get_name(region, *_AWS_REGION, what="the region, which no profile names,")

    def fetch(self, fresh: bool) -> Proof:  # noqa: FBT001  # as every fetch
        """Return the keys of now; look anew where others are wanted: a login of the user's may have written them."""
        with _explaining_aws():
            if fresh:
                self._session = self._found = None
            self._open()
            self._found = self._found or self._session.get_credentials()
            if self._found is None:
                raise CredentialError("no AWS credentials were found: variables, profiles, roles", hint=_AWS_ADVICE)
            key = self._found.get_frozen_credentials()
            words = f"AWS's login (profile {self._session.profile_name}, from {self._found.method})"
        return Proof(value=key, secrets=tuple(text for text in (key.secret_key, key.token) if text), words=words)

    def _open(self) -> None:
        import boto3

        self._session = self._session or boto3.Session()


@contextmanager
def _explaining_aws() -> Iterator[None]:
    from botocore import exceptions

    try:
        yield
    except (exceptions.BotoCoreError, exceptions.ClientError, RuntimeError) as error:  # renewed, and over all the same
        passes = isinstance(error, exceptions.ConnectionError | exceptions.HTTPClientError)
        words = " ".join(str(error).split())[:_SHOWN_CHARS]
        raise CredentialError(f"AWS's login: {words}", hint=_AWS_ADVICE, passes=passes) from None


# The first-party API


def _find_login(environ: Mapping[str, str]) -> Way:
    """Return the way with a login of Anthropic's SDK.

    Raises:
        RunnerError: There is none.
    """
    words = name_login(environ)
    if not words:
        get_key_name(environ)
    base = find_base(environ, ANTHROPIC)

    @cache
    def load() -> "Login":
        from relay.runners.messages.client import Login

        return Login(base)

    credential = Credential(words, lambda fresh: load().fetch(fresh), advice=_LOGIN_ADVICE)
    return Way(credential=credential, needs_sdk=True, find_place=lambda: load().find_place())


def name_login(environ: Mapping[str, str]) -> str:
    """Name what the SDK's chain would find, as far as that can be seen without it; empty for nothing."""
    if name := environ.get("ANTHROPIC_PROFILE"):
        return f"profile {name} of ant auth login"
    if environ.get("ANTHROPIC_FEDERATION_RULE_ID") and environ.get("ANTHROPIC_ORGANIZATION_ID"):
        named = [name for name in ("ANTHROPIC_IDENTITY_TOKEN_FILE", "ANTHROPIC_IDENTITY_TOKEN") if environ.get(name)]
        if named:
            return f"workload identity ({named[0]})"
    folder = Path(environ.get("ANTHROPIC_CONFIG_DIR") or f"{environ.get('HOME', '')}/.config/anthropic")
    name = "default"
    with suppress(OSError, UnicodeDecodeError):
        name = (folder / "active_config").read_text(encoding="utf-8").strip() or name
    with suppress(OSError, ValueError):
        if (folder / "configs" / f"{name}.json").is_file():
            return f"profile {name} of ant auth login"
    return ""
