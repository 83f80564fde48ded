"""What an endpoint's error means: one `Fault`, from an error response, an error in a stream, or an exception."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from relay.runners.messages.connection import Fault, FaultKind, classify_error, find_retry_after
from relay.runners.messages.credentials import REFUSED, Credential, CredentialError
from relay.runners.messages.endpoint import ANTHROPIC, Family
from relay.session.usage import Usage

if TYPE_CHECKING:
    import httpx2

NOT_FOUND = 404
TRANSIENT = frozenset({FaultKind.INFRA, FaultKind.LIMIT})
_ERROR_STATUSES = range(400, 600)
_GATEWAY_TIMEOUTS = frozenset({504, 524})
"""A proxy in between stopped waiting; the endpoint behind it may go on, and bill the request."""
_SHOWN_CHARS = 500
_READ_CHARS = 4_000


def judge_event(data: Mapping[str, Any], usage: Usage | None, *, has_begun: bool) -> Fault:
    """Return the fault of an error that came with a status of success.

    Args:
        usage: What the answer had reported until then.
        has_begun: Whether part of an answer came before it: then the request was well-formed and worked on.
    """
    found = data.get("error")
    error: Mapping[str, Any] = found if isinstance(found, dict) else {"message": found}
    text, name, code = str(error.get("message") or ""), find_text(error, "type"), error.get("code")
    status = code if isinstance(code, int) and code in _ERROR_STATUSES else 200
    kind = classify_error(status=status, error_type=name, error_code=_find_code(error), text=text)
    lasting = kind is FaultKind.REQUEST
    where = "in mid-stream" if has_begun else "instead of an answer"
    return Fault(
        kind=FaultKind.INFRA if lasting else kind,
        message=f"{name or (f'error {code}' if status == code else 'an error')} {where}: {text[:_SHOWN_CHARS]}",
        usage=usage,
        may_be_billed=has_begun,
        lasting=lasting,
    )


def judge_status(error: "httpx2.Response", family: Family = ANTHROPIC, credential: Credential | None = None) -> Fault:
    """Return the fault of an error response; `credential` has signed the request, and was renewed once."""
    said = get_error(error)
    kind = classify_error(
        status=error.status_code,
        error_type=find_text(said, "type"),
        error_code=_find_code(said),
        text=_find_words(error),
    )
    if kind in TRANSIENT and error.headers.get("x-should-retry") == "false":
        kind = FaultKind.REQUEST  # the endpoint knows that the error is not transient
    late = error.status_code in _GATEWAY_TIMEOUTS
    is_refused = credential is not None and error.status_code in REFUSED
    again = f"; {credential.words} was asked again, which did not help" if credential and is_refused else ""
    return Fault(
        kind=kind,
        message=_describe(error, family) + again,
        retry_after_s=find_retry_after(error.headers, said.get("details")),
        may_be_billed=late,
        lasting=late,
    )


def judge_failure(error: Exception, words: str, usage: Usage | None = None) -> Fault:
    """Return the fault of a request that had no response, or whose response broke off.

    Args:
        words: For the user, where the error is no missing credential.
        usage: What the answer had reported until then.
    """
    import httpx2

    if isinstance(error, CredentialError):
        kind = FaultKind.INFRA if error.passes else FaultKind.USER
        return Fault(kind=kind, message=f"{error.message}; {error.hint}" if error.hint else error.message)
    unsent = httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.WriteError | httpx2.InvalidURL
    if isinstance(error, unsent):
        return Fault(kind=FaultKind.INFRA, message=words)
    return Fault(kind=FaultKind.INFRA, message=words, usage=usage, may_be_billed=True)


def get_error(response: "httpx2.Response") -> Mapping[str, Any]:
    """Return the ``error`` object of an error's body; empty if it has none."""
    try:
        body = json.loads(response.content)
    except (ValueError, RecursionError):
        return {}
    body = body[0] if isinstance(body, list) and body else body
    inner = body.get("error") if isinstance(body, dict) else None
    return inner if isinstance(inner, dict) else {}


def find_text(source: Mapping[str, Any], name: str) -> str | None:
    """Return a field of an error if it is text."""
    value = source.get(name)
    return value if isinstance(value, str) else None


def _find_code(error: Mapping[str, Any]) -> str | None:
    """Return an error's code: ``details.error_code``, or ``code`` as other providers have it."""
    details = error.get("details")
    return (find_text(details, "error_code") if isinstance(details, dict) else None) or find_text(error, "code")


def _find_words(error: "httpx2.Response") -> str:
    """Return the message of the body, else all of it; empty if nothing is in it."""
    if inner := get_error(error):
        return str(inner.get("message") or "")
    text = error.content.decode(errors="replace")
    return "" if text.strip() in {"{}", "[]", "null", '""'} else text


def _describe(error: "httpx2.Response", family: Family) -> str:
    kind = find_text(get_error(error), "type")
    text = " ".join(_find_words(error)[:_READ_CHARS].split())[:_SHOWN_CHARS] or "no body"
    if target := error.headers.get("location"):
        text = f"it sends us to {target[:_SHOWN_CHARS]}; if that is right, set {family.base}"
    words = f"HTTP {error.status_code}{f' {kind}' if kind else ''}: {text}"
    if error.status_code == NOT_FOUND:
        speaks = (
            f" is without {family.dropped}, and of a server that speaks the Messages API ({family.dropped}/messages)"
        )
        form = speaks if family.dropped else f" ends with {family.root}" if family.root else ""
        words += f"; nothing is served at this address, or not this model: {family.base}{form}"
    request_id = error.headers.get("request-id") or error.headers.get("x-amzn-requestid")
    return f"{words} (request {request_id})" if request_id else words


def name_cause(error: Exception) -> str:
    """Name an error by its cause, if it has one."""
    cause = error.__cause__ or error
    return f"{type(cause).__name__}: {cause}" if str(cause) else type(cause).__name__


def advise(status: int, family: Family, credential: Credential | None) -> str:
    """Return what the user can do about a refusal."""
    if status in REFUSED:
        own = f"export {family.keys[0]}=… with a key of this endpoint; relay doctor tries it"
        return credential.advice if credential else own
    if status == NOT_FOUND:
        return f"check {family.base} and the model's name"
    return "see the endpoint's words above; `relay doctor` tries it again"
