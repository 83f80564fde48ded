"""Clouds on this machine: each checks who asks, and what for, as the real one does; a rehearsal server answers.

A signature of AWS is made again by botocore, from what came over the wire and the secret that only the user has.
"""

import base64
import json
import re
import struct
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import httpx2

VERSION, AGENTS_VERSION = "2026-10-21", "2023-06-01"
REGION, PROJECT, WORKSPACE, RESOURCE_KEY = "eu-west-1", "my-project", "wrkspc_1", "foundry-key-of-the-user"
EXPIRED = 403
_AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256 Credential=([^/]+)/\d{8}/([^/]+)/([^/]+)/aws4_request, SignedHeaders=([^,]+), Signature=(\w+)"
)


class RefusedError(Exception):
    """The cloud says no."""


@dataclass
class FakeClouds:
    """All clouds at one address, each below a folder of its own."""

    url: str = ""
    backend: str = ""
    """Address of a rehearsal server; empty to answer `answer`."""
    answer: bytes = b""
    seen: list[dict[str, Any]] = field(default_factory=list)
    """Requests for a model: path, headers and body as they came."""
    exchanges: list[Mapping[str, Any]] = field(default_factory=list)
    """What was asked of the services that hand out tokens."""
    lasts_s: int = 3600
    """How long a token lasts that is handed out."""
    revoked: set[str] = field(default_factory=set)
    """Tokens and access keys that are over."""
    revokes_at: int = 0
    """The number of the request that finds its key taken back; 0 for none."""
    away: int = 0
    """How many of the next exchanges the service is not there for."""

    @property
    def environ(self) -> dict[str, str]:
        """Variables that lead to the clouds; keys are not among them."""
        return {
            "AWS_REGION": REGION,
            "AWS_EC2_METADATA_DISABLED": "true",
            "ANTHROPIC_BEDROCK_MANTLE_BASE_URL": f"{self.url}/mantle/anthropic",
            "ANTHROPIC_BEDROCK_BASE_URL": f"{self.url}/runtime",
            "ANTHROPIC_AWS_BASE_URL": f"{self.url}/aws",
            "ANTHROPIC_AWS_WORKSPACE_ID": WORKSPACE,
            "ANTHROPIC_VERTEX_BASE_URL": f"{self.url}/vertex/v1",
            "ANTHROPIC_VERTEX_PROJECT_ID": PROJECT,
            "CLOUD_ML_REGION": REGION,
            "ANTHROPIC_FOUNDRY_BASE_URL": f"{self.url}/foundry/anthropic",
            "NO_PROXY": "*",
        }

    def hand_out(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Hand out the next token."""
        self.exchanges.append(body)
        return {
            "access_token": f"handed-out-token-number-{len(self.exchanges)}",
            "refresh_token": f"handed-out-refresh-number-{len(self.exchanges)}",
            "expires_in": self.lasts_s,
            "token_type": "Bearer",
        }

    def check(self, path: str, headers: Mapping[str, str], raw: bytes, url: str) -> tuple[dict[str, Any], bool]:
        """Return the request as the Messages API has it, and whether the answer comes in frames."""
        body = json.loads(raw)
        place, _, rest = path[1:].removesuffix("?beta=true").partition("/")
        if place == "runtime":
            found = re.fullmatch(r"model/([^/]+)/invoke-with-response-stream", rest)
            if not found or "model" in body or "stream" in body or body.pop("anthropic_version") != VERSION:
                raise RefusedError(f"this is no request of Bedrock's runtime: {path}")
            self._check_aws(headers, raw, url, "bedrock")
            return {**body, "model": unquote(found[1]), "stream": True}, True
        if place == "vertex":
            found = re.fullmatch(
                rf"v1/projects/{PROJECT}/locations/{REGION}/publishers/anthropic/models/([^/]+):streamRawPredict", rest
            )
            if not found or "model" in body or body.pop("anthropic_version") != VERSION or not body["stream"]:
                raise RefusedError(f"this is no request of Vertex: {path}")
            self._check_token(headers)
            return {**body, "model": unquote(found[1])}, False
        folder = {"mantle": "anthropic/", "foundry": "anthropic/", "aws": "", "v1": None}[place]
        if headers.get("anthropic-version") not in {VERSION, AGENTS_VERSION} or (
            folder is not None and rest != f"{folder}v1/messages"
        ):
            raise RefusedError(f"this is no request of the Messages API: {path}")
        self._check_plain(place, headers, raw, url)
        return body, False

    def _check_plain(self, place: str, headers: Mapping[str, str], raw: bytes, url: str) -> None:
        match place:
            case "mantle":
                self._check_aws(headers, raw, url, "bedrock-mantle")
            case "aws":
                if headers.get("anthropic-workspace-id") != WORKSPACE:
                    raise RefusedError("no workspace")
                self._check_aws(headers, raw, url, "aws-external-anthropic")
            case "foundry":
                if headers.get("x-api-key") != RESOURCE_KEY:
                    self._check_token(headers)
            case _:
                self._check_token(headers)
                if "oauth-2025-04-20" not in headers.get("anthropic-beta", ""):
                    raise RefusedError("a token of a login needs its beta")

    def _check_token(self, headers: Mapping[str, str]) -> None:
        token = headers.get("authorization", "").removeprefix("Bearer ")
        if not token.startswith("handed-out-token") or token in self.revoked or "x-api-key" in headers:
            raise RefusedError(f"{token} is over")

    def _check_aws(self, headers: Mapping[str, str], raw: bytes, url: str, service: str) -> None:
        from botocore.auth import SigV4Auth
        from botocore.awsrequest import AWSRequest
        from botocore.credentials import Credentials

        if headers.get("authorization", "").startswith("Bearer "):
            self._check_token(headers)
            return
        found = _AUTHORIZATION.fullmatch(headers.get("authorization", ""))
        if not found or (found[2], found[3]) != (REGION, service):
            raise RefusedError(f"no signature for {service}: {headers.get('authorization')}")
        key, names, signature = found[1], found[4].split(";"), found[5]
        if key in self.revoked:
            raise RefusedError("The security token included in the request is expired")
        if not {"host", "x-amz-date"} <= set(names) or headers.get("x-amz-security-token") != make_token(key):
            raise RefusedError("too little is signed")
        request = AWSRequest(method="POST", url=url, data=raw, headers={name: headers[name] for name in names})
        request.context["timestamp"] = headers["x-amz-date"]
        judge = SigV4Auth(Credentials(key, make_secret(key), make_token(key)), service, REGION)
        made = judge.signature(judge.string_to_sign(request, judge.canonical_request(request)), request)
        if made != signature:
            raise RefusedError("The request signature we calculated does not match")


def name_key(headers: Mapping[str, str]) -> str:
    """Return the token, or the access key, that a request was sent with."""
    text = headers["authorization"]
    return text.partition("Credential=")[2].partition("/")[0] or text.removeprefix("Bearer ")


def make_secret(key: str) -> str:
    return f"secret-of-{key}-that-nobody-sees"


def make_token(key: str) -> str:
    return f"session-token-of-{key}-that-nobody-sees"


def render_frame(kind: str, payload: bytes, message: str = "event") -> bytes:
    """Write one frame of AWS's event stream. Source: the smithy specification, vnd.amazon.eventstream."""
    name = ":exception-type" if message == "exception" else ":event-type"
    pairs = ((name, kind), (":content-type", "application/json"), (":message-type", message))
    headers = b"".join(
        struct.pack("!B", len(key)) + key.encode() + struct.pack("!BH", 7, len(value)) + value.encode()
        for key, value in pairs
    )
    prelude = struct.pack("!II", 16 + len(headers) + len(payload), len(headers))
    text = prelude + struct.pack("!I", zlib.crc32(prelude)) + headers + payload
    return text + struct.pack("!I", zlib.crc32(text))


def render_frames(stream: bytes) -> bytes:
    """Write server-sent events as Bedrock's runtime sends them; it has no pings."""
    data = re.findall(rb"^data: (.*)$", stream, re.MULTILINE)
    pieces = (json.dumps({"bytes": base64.b64encode(text).decode(), "p": "abcd"}).encode() for text in data)
    return b"".join(render_frame("chunk", piece) for piece in pieces)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    clouds: FakeClouds

    def do_POST(self) -> None:  # the standard library's name
        raw = self.rfile.read(int(self.headers.get("content-length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        if self.path in {"/v1/oauth/token", "/google/token"}:
            self._exchange(headers, raw)
            return
        self.clouds.seen.append({"path": self.path, "headers": headers, "body": raw})
        if len(self.clouds.seen) == self.clouds.revokes_at:
            self.clouds.revoked.add(name_key(headers))
        try:
            request, is_framed = self.clouds.check(self.path, headers, raw, f"http://{headers['host']}{self.path}")
        except RefusedError as error:
            self._send(EXPIRED, "application/json", json.dumps({"message": str(error)}).encode())
            return
        status, content = 200, self.clouds.answer
        if self.clouds.backend:
            own = {"x-api-key": "k", "anthropic-version": VERSION}
            request["model"] = "claude-opus-5-5"
            asked = httpx2.post(f"{self.clouds.backend}/v1/messages", json=request, headers=own, trust_env=False)
            status, content = asked.status_code, asked.content
        if is_framed and status == 200:
            self._send(status, "application/vnd.amazon.eventstream", render_frames(content))
        else:
            self._send(status, "text/event-stream" if status == 200 else "application/json", content)

    def _exchange(self, headers: Mapping[str, str], raw: bytes) -> None:
        from urllib.parse import parse_qsl

        if self.clouds.away:
            self.clouds.away -= 1
            self._send(503, "application/json", b"{}")
            return
        is_json = headers.get("content-type") == "application/json"
        asked = json.loads(raw) if is_json else dict(parse_qsl(raw.decode()))
        self._send(200, "application/json", json.dumps(self.clouds.hand_out(asked)).encode())

    def _send(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@contextmanager
def serve_clouds(**given: Any) -> Iterator[FakeClouds]:
    """Serve all clouds until the block ends."""
    clouds = FakeClouds(**given)
    with ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"clouds": clouds})) as server:
        clouds.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield clouds
        finally:
            server.shutdown()
            thread.join()


def make_aws_login(home: Path, lasts: str = "2 hours") -> dict[str, str]:
    """Write a profile whose program hands out the keys AKIA1, AKIA2 …, and return the variables that lead to it.

    Args:
        lasts: How long a key lasts, for `date`; botocore asks again 10 minutes before its end.
    """
    program = home / "login"
    key = {"Version": 1, "AccessKeyId": "AKIA$n", "Expiration": "$end"}
    key |= {"SecretAccessKey": make_secret("AKIA$n"), "SessionToken": make_token("AKIA$n")}
    program.write_text(
        f"#!/bin/sh\necho asked >> {home}/aws-asked\nn=$(wc -l < {home}/aws-asked | tr -d ' ')\n"
        f'end=$(date -u -d "+{lasts}" +%Y-%m-%dT%H:%M:%SZ)\ncat <<END\n{json.dumps(key)}\nEND\n'
    )
    program.chmod(0o755)
    (home / "aws-config").write_text(f"[profile work]\ncredential_process = {program}\nregion = {REGION}\n")
    return {
        "AWS_CONFIG_FILE": str(home / "aws-config"),
        "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
        "AWS_PROFILE": "work",
    }


def make_google_login(home: Path, token_uri: str) -> dict[str, str]:
    """Write a service account, and return the variable that names it."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(public_exponent=65537, key_size=2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    account = {
        "type": "service_account",
        "project_id": "another-project",
        "private_key": key.decode(),
        "client_email": "robot@my-project.example",
        "token_uri": token_uri,
    }
    (home / "google.json").write_text(json.dumps(account))
    return {"GOOGLE_APPLICATION_CREDENTIALS": str(home / "google.json")}


def make_workload(home: Path) -> dict[str, str]:
    """Write an identity token as CI does, and return the variables of the federation."""
    (home / "identity").write_text("header.payload.signature-of-ci")
    return {
        "ANTHROPIC_FEDERATION_RULE_ID": "fdrl_1",
        "ANTHROPIC_ORGANIZATION_ID": "00000000-0000-0000-0000-000000000000",
        "ANTHROPIC_IDENTITY_TOKEN_FILE": str(home / "identity"),
    }


def make_profile(home: Path, *, expires_at: int) -> dict[str, str]:
    """Write what `ant auth login` leaves behind, and return the variable that names the folder."""
    for name, content, mode in (
        ("configs/default.json", {"authentication": {"type": "user_oauth", "client_id": "c"}}, 0o644),
        (
            "credentials/default.json",
            {"access_token": "handed-out-token-number-0", "refresh_token": "r", "expires_at": expires_at},
            0o600,
        ),
    ):
        path = home / "ant" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content))
        path.chmod(mode)
    return {"ANTHROPIC_CONFIG_DIR": str(home / "ant")}


Login = Callable[[Path, FakeClouds], Mapping[str, str]]
