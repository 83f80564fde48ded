"""Ways to Claude that need more than a fixed key: a login of Anthropic's SDK, the user's command, and clouds.

The extra `cloud` brings the SDK, and what that takes for clouds: botocore and google-auth find and renew credentials,
and botocore signs; relay asks these themselves, in 0.2 s. Anthropic's own login and the frames of Bedrock's event
stream are the SDK's, which is imported for them alone, because that takes 1 to 2 s and 77 MB. The requests are relay's:
address and body are written here as the SDK writes them, and `tests/runners/test_clouds.py` compares the two.

A cloud whose key is in a variable, or printed by `key_command`, needs no SDK, but for Bedrock's older models, whose
answers come in frames.
"""

import os
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from datetime import UTC
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote

from relay.base.errors import ConfigError
from relay.base.hints import advise_extra
from relay.config import Settings
from relay.runners.messages.answers import StreamBrokenError
from relay.runners.messages.credentials import (
    BearerToken,
    Credential,
    CredentialError,
    KeyCommand,
    Token,
    find_work_trees,
)
from relay.runners.messages.endpoint import (
    ANTHROPIC,
    AWS,
    BEDROCK,
    EDITING_BETA,
    FOUNDRY,
    VERSION,
    VERTEX,
    Way,
    find_base,
    get_key_name,
)

if TYPE_CHECKING:
    import httpx2

_FAMILIES = {family.name: family for family in (ANTHROPIC, BEDROCK, VERTEX, FOUNDRY, AWS)}
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9:._-]{0,98}[A-Za-z0-9])?")
"""A region, a resource or a project: it becomes part of an address."""
_AWS_REGION = ("AWS_REGION", "AWS_DEFAULT_REGION")
_AWS_WORKSPACE = "ANTHROPIC_AWS_WORKSPACE_ID"
_AWS_HOST, _MANTLE_HOST = "aws-external-anthropic.{}.api.aws", "bedrock-mantle.{}.api.aws/anthropic"
_AWS_SERVICES = {"bedrock": "bedrock-mantle", "aws": "aws-external-anthropic"}
"""Names in signatures; Bedrock's runtime has its own, ``bedrock``."""
_RUNTIME, _RUNTIME_HOST = "ANTHROPIC_BEDROCK_BASE_URL", "bedrock-runtime.{}.amazonaws.com"
_RUNTIME_ENDING = "/invoke-with-response-stream"
_DECODER = "anthropic.lib.bedrock._stream_decoder"
_BEDROCK_MODEL = re.compile(r"(?:[a-z-]{2,8}\.)?anthropic\.\S+|arn:aws[a-z-]*:bedrock:\S+")
_MANTLE_MODEL = re.compile(r"anthropic\.(?!\S*-v\d+(?::\d+)?$)[a-z0-9-]+")
"""A model at Bedrock's Messages API, called Mantle; every other one is at its older runtime."""
_FRAME_BYTES = range(16, 24 * 1024 * 1024 + 1)
"""Sizes of a frame, which stand in its first bytes. Source: botocore.eventstream."""
_SIZE_BYTES = 4
_SIGNATURE = ("authorization", "x-amz-date", "x-amz-security-token")
_GOOGLE_REGION, _GOOGLE_PROJECT = "CLOUD_ML_REGION", "ANTHROPIC_VERTEX_PROJECT_ID"
_GOOGLE_HOSTS = {
    "global": "aiplatform.googleapis.com",
    "us": "aiplatform.us.rep.googleapis.com",
    "eu": "aiplatform.eu.rep.googleapis.com",
}
_FOUNDRY_RESOURCE = "ANTHROPIC_FOUNDRY_RESOURCE"
_GOOGLE_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_SDK, _AWS_SDK, _GOOGLE_SDK = ("anthropic",), ("boto3",), ("google.auth", "requests")
_AWS_ADVICE = "aws sso login, or aws configure; AWS_PROFILE chooses a profile"
_GOOGLE_ADVICE = "gcloud auth application-default login"
_SDK_ADVICE = "ant auth login; ANTHROPIC_PROFILE chooses a profile"
_TOO_MANY, _SERVER_ERROR = 429, 500
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
    command = _make_command(settings, environ) if settings.key_command and not is_set else None
    if is_set:
        get_key_name(environ, (family,))
    match settings.provider:
        case "bedrock" | "aws":
            return _find_aws(settings, environ, None if is_set else command or AwsSignature(environ, family.name))
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


def _make_command(settings: Settings, environ: Mapping[str, str]) -> BearerToken:
    apart = [Path(place).expanduser().resolve() for place in settings.writable_dirs]
    command = KeyCommand(settings.key_command, environ, (*find_work_trees(Path.cwd()), *apart))
    command.require()
    return BearerToken(command.name, command.fetch, advice=command.advice)


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
    if not base:
        base = f"https://{_get_name(environ, _FOUNDRY_RESOURCE, what='the resource')}.services.ai.azure.com/anthropic"
    return Way(family=FOUNDRY, credential=command, find_address=lambda: base, lists_models=False)


# Google


def _find_vertex(environ: Mapping[str, str], command: Credential | None) -> Way:
    region = _get_name(environ, _GOOGLE_REGION, what="the region")
    if command is None:
        _require_extra("Google's login", _GOOGLE_SDK)
    is_named = command is not None or bool(environ.get(_GOOGLE_PROJECT))
    login = _GoogleLogin(_get_name(environ, _GOOGLE_PROJECT, what="the project") if is_named else "")
    base = (
        find_base(environ, VERTEX) or f"https://{_GOOGLE_HOSTS.get(region, f'{region}-aiplatform.googleapis.com')}/v1"
    )

    def locate(request: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
        place = f"{base}/projects/{login.get_project()}/locations/{region}/publishers/anthropic/models"
        model = quote(str(request["model"]), safe=":@")
        body = {name: value for name, value in request.items() if name != "model"}
        return f"{place}/{model}:streamRawPredict", {**body, "anthropic_version": VERSION}

    own = BearerToken("provider = vertex", login.fetch, advice=_GOOGLE_ADVICE)
    return Way(family=VERTEX, credential=command or own, find_address=lambda: base, locate=locate, lists_models=False)


class _GoogleLogin:
    """Application Default Credentials. Mutable: learns the project.

    Args:
        project: Empty to take that of the login.
    """

    def __init__(self, project: str) -> None:
        self._project = project

    def get_project(self) -> str:
        """Return the project; look it up in the login first where nobody names it."""
        if not self._project:
            self.fetch()
        return self._project

    def fetch(self, _fresh: bool = False) -> Token:  # noqa: FBT001, FBT002  # as every fetch
        """Read the login anew, and get a token for it.

        Raises:
            CredentialError: There is no login, Google refuses it or is not reached, or it has no project.
        """
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
        self._project = _get_name(named, _GOOGLE_PROJECT, what="the project, which Google's login does not name,")
        until = found.expiry.replace(tzinfo=UTC).timestamp() if found.expiry else None
        account = getattr(found, "service_account_email", "") or getattr(found, "account", "")
        where = os.environ.get("GOOGLE_APPLICATION_CREDENTIALS") or type(found).__module__
        words = f"Google's login{f' of {account}' if account else ''} (project {self._project}, from {where})"
        return Token(value=str(found.token), until=until, words=words)


# AWS


def _find_aws(settings: Settings, environ: Mapping[str, str], credential: Credential | None) -> Way:
    family = _FAMILIES[settings.provider]
    own = credential if isinstance(credential, AwsSignature) else None
    is_framed = family is BEDROCK and not _MANTLE_MODEL.fullmatch(settings.model)
    if own or is_framed:
        what = "AWS's login" if own else f"{settings.model}, a model of Bedrock's older runtime,"
        _require_extra(what, (*_AWS_SDK, *_SDK) if is_framed else _AWS_SDK)
    get_region = own.get_region if own else partial(_get_name, environ, *_AWS_REGION, what="the region")
    base = environ.get(_RUNTIME, "").rstrip("/") if is_framed else find_base(environ, family)
    if not own and not base:
        get_region()  # one that is missing is seen now
    if family is AWS:
        workspace = _get_name(environ, _AWS_WORKSPACE, what="the workspace")
        family = replace(family, headers=(*family.headers, ("anthropic-workspace-id", workspace)))
        find = partial(_find_aws_address, base, _AWS_HOST, get_region)
        return Way(family=family, credential=credential, find_address=find)
    find = partial(
        _find_aws_address, base, _RUNTIME_HOST if is_framed else _MANTLE_HOST, get_region, is_framed=is_framed
    )
    locate = partial(_locate_at_bedrock, environ, get_region)
    return Way(family=family, credential=credential, find_address=find, locate=locate, lists_models=False)


def _find_aws_address(base: str, host: str, get_region: Callable[[], str], *, is_framed: bool = False) -> str:
    if is_framed:
        import_module(_DECODER)  # now, not while an answer waits
    return base or f"https://{host.format(get_region())}"


def _locate_at_bedrock(
    environ: Mapping[str, str], get_region: Callable[[], str], request: Mapping[str, Any]
) -> tuple[str, Mapping[str, Any]]:
    """Return address and body; one run may use models of both of Bedrock's endpoints."""
    model = str(request["model"])
    if _MANTLE_MODEL.fullmatch(model):
        base = find_base(environ, BEDROCK) or f"https://{_MANTLE_HOST.format(get_region())}"
        return f"{base}/v1/messages", request
    base = environ.get(_RUNTIME, "").rstrip("/") or f"https://{_RUNTIME_HOST.format(get_region())}"
    body = {name: value for name, value in request.items() if name not in {"model", "stream"}}
    if "context_management" in request:
        body["anthropic_beta"] = [EDITING_BETA]
    return f"{base}/model/{quote(model, safe=':;')}{_RUNTIME_ENDING}", {**body, "anthropic_version": VERSION}


class AwsSignature:
    """AWS's own credentials, as boto3 finds them, which sign each request. Mutable: botocore renews them.

    Args:
        environ: May name the region; boto3 reads the process's own environment.
        provider: Names the service in signatures.
    """

    advice = _AWS_ADVICE

    def __init__(self, environ: Mapping[str, str], provider: str) -> None:
        self._environ = environ
        self._service = _AWS_SERVICES[provider]
        self._session: Any = None
        self._found: Any = None
        self._known: dict[str, None] = {}
        self._lock = Lock()
        self.words = f"provider = {provider}"

    @property
    def secrets(self) -> tuple[str, ...]:
        return tuple(self._known)

    def get_region(self) -> str:
        """Return the region of the environment, else that of the profile.

        Raises:
            CredentialError: Neither names one, or the profile is not there.
        """
        if any(self._environ.get(name) for name in _AWS_REGION):
            return _get_name(self._environ, *_AWS_REGION, what="the region")
        with self._lock, _explaining_aws():
            self._open()
        region = {_AWS_REGION[0]: self._session.region_name or ""}
        return _get_name(region, *_AWS_REGION, what="the region, which no profile names,")

    def sign(self, request: "httpx2.Request") -> str:
        """Sign a request as it is; later changes of its headers or body make the signature wrong."""
        from botocore.auth import SigV4Auth
        from botocore.awsrequest import AWSRequest

        region = self.get_region()
        with self._lock, _explaining_aws():
            key = self._freeze()
        unsigned = {*_SIGNATURE, "connection"}  # a proxy may take that header away
        headers = {name: value for name, value in request.headers.items() if name not in unsigned}
        signed = AWSRequest(method=request.method, url=str(request.url), headers=headers, data=request.read())
        service = "bedrock" if request.url.path.endswith(_RUNTIME_ENDING) else self._service
        SigV4Auth(key, service, region).add_auth(signed)
        for name in _SIGNATURE:
            request.headers.pop(name, None)
        request.headers.update({name: signed.headers[name] for name in _SIGNATURE if name in signed.headers})
        return f"{key.access_key} {key.token}"

    def renew(self, refused: str) -> bool:
        """Look for credentials anew: a login of the user's may have written others."""
        with self._lock, _explaining_aws():
            key = self._freeze()
            if f"{key.access_key} {key.token}" != refused:
                return True  # another thread has
            self._session = self._found = None
            key = self._freeze()
            return f"{key.access_key} {key.token}" != refused

    def _open(self) -> None:
        import boto3

        self._session = self._session or boto3.Session()

    def _freeze(self) -> Any:
        """Return the credentials of now."""
        self._open()
        self._found = self._found or self._session.get_credentials()
        if self._found is None:
            raise CredentialError("no AWS credentials were found: variables, profiles, roles", hint=_AWS_ADVICE)
        key = self._found.get_frozen_credentials()
        self._known |= dict.fromkeys(text for text in (key.secret_key, key.token) if text)
        self.words = f"AWS's login (profile {self._session.profile_name}, from {self._found.method})"
        return key


@contextmanager
def _explaining_aws() -> Iterator[None]:
    from botocore import exceptions

    try:
        yield
    except (exceptions.BotoCoreError, exceptions.ClientError, RuntimeError) as error:  # renewed, and over all the same
        passes = isinstance(error, exceptions.ConnectionError | exceptions.HTTPClientError)
        words = " ".join(str(error).split())[:_SHOWN_CHARS]
        raise CredentialError(f"AWS's login: {words}", hint=_AWS_ADVICE, passes=passes) from None


def read_frames(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the frames of AWS as server-sent events, and an empty text behind each chunk: a sign of life.

    Raises:
        StreamBrokenError: They are no frames, or damaged.
    """
    from botocore.eventstream import ParserError

    decoder, held = import_module(_DECODER).AWSEventStreamDecoder(), b""
    for chunk in chunks:
        held += chunk
        while len(held) >= _SIZE_BYTES:
            size = int.from_bytes(held[:_SIZE_BYTES])
            if size not in _FRAME_BYTES:
                raise StreamBrokenError(f"a frame of {size:,} bytes")
            if len(held) < size:
                break
            frame, held = held[:size], held[size:]
            try:
                for event in decoder.iter_bytes(iter((frame,))):
                    yield f"event: {event.event}\ndata: {event.data}\n\n".encode()
            except (ParserError, ValueError, KeyError) as error:
                raise StreamBrokenError(f"a damaged frame: {error}") from error
        yield b""


# The first-party API


def _find_login(environ: Mapping[str, str]) -> Way:
    """Return the way with a login of Anthropic's SDK.

    Raises:
        RunnerError: There is none.
    """
    words = name_login(environ)
    if not words:
        get_key_name(environ)
    _require_extra(words, _SDK)
    base = find_base(environ, ANTHROPIC)
    credential = BearerToken(words, partial(_fetch_login, base), advice=_SDK_ADVICE)
    return Way(credential=credential, find_address=partial(_find_login_address, base))


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


def _find_login_address(base: str) -> str:
    """Return the address of the environment, else that of the login, else the usual one; imports the SDK."""
    with _finding_login(base) as found:
        return base or found.base_url or ANTHROPIC.address


def _fetch_login(base: str, fresh: bool) -> Token:  # noqa: FBT001  # as every fetch
    """Have the SDK's chain give a token; a fresh one is in no file yet.

    Raises:
        CredentialError: The login is over, or the service that renews it does not answer.
    """
    from anthropic.lib.credentials._constants import OAUTH_API_BETA_HEADER

    with _finding_login(base) as found:
        token = found.provider(force_refresh=fresh)
        where = getattr(found.provider, "config_path", "")
        return Token(
            value=token.token,
            until=token.expires_at,
            headers={"anthropic-beta": OAUTH_API_BETA_HEADER, **found.extra_headers},
            words=f"profile {found.provider.profile} of ant auth login ({where})" if where else "",
        )


@contextmanager
def _finding_login(base: str) -> Iterator[Any]:
    """Yield what the SDK's chain finds now; every fault of it as a CredentialError."""
    import httpx2
    from anthropic import AnthropicError
    from anthropic.lib.credentials import default_credentials

    try:
        found = default_credentials(base_url=base or ANTHROPIC.address)
        if found is None:
            raise CredentialError("Anthropic's SDK finds no login that it can use", hint=_SDK_ADVICE)
        with closing(cast("Any", found.provider)):
            yield found
    except (AnthropicError, OSError, ValueError) as error:
        status = getattr(error, "status_code", None) or 0
        passes = status == _TOO_MANY or status >= _SERVER_ERROR or isinstance(error.__cause__, httpx2.HTTPError)
        words = " ".join(str(error).split())[:_SHOWN_CHARS]
        raise CredentialError(f"Anthropic's login: {words}", hint=_SDK_ADVICE, passes=passes) from None
