"""`relay otel`: a run's log as OpenTelemetry spans."""

import json
import os
from collections.abc import Iterator
from importlib import metadata
from typing import TYPE_CHECKING, Any

import click

from relay.cli.boundary import note_caller
from relay.cli.screen import say
from relay.cli.watch import get_run, open_log
from relay.errors import ConfigError, RepoError
from relay.setup.place import get_place
from relay.words import count

if TYPE_CHECKING:
    from relay.telemetry.follow import LogTail

_BATCH = 512
_TIMEOUT_S = 30.0
_DEFAULT = "http://localhost:4318"


@click.command("otel", short_help="Send a run's log to an OpenTelemetry collector.")
@click.argument("run", required=False, default="", help="The run's id; the newest one when left out.")
@click.option(
    "--endpoint", metavar="URL", help="Where; else OTEL_EXPORTER_OTLP_ENDPOINT, or port 4318 of this machine."
)
def command(run: str, *, endpoint: str | None) -> None:
    """Send a run's log as spans (OTLP over HTTP, as JSON): the run, its sessions, answers, tool calls and gates.

    RUN is the beginning of a run's id; the last run when left out. Names, times, tokens and costs are sent; what was
    said, read or run is not. Nothing is sent unless you type this; a log that is sent twice has the same spans.
    """
    place = get_place(plan=None, environ=os.environ)
    note_caller(place.caller)
    if place.repo is None:
        raise RepoError("there is no git repository here", hint="git init")
    url = (endpoint or os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT") or _DEFAULT).rstrip("/") + "/v1/traces"
    if not url.startswith(("http://", "https://")):
        raise ConfigError(f"{url} is no address of a collector", hint=f"--endpoint {_DEFAULT}")
    sent = 0
    with open_log(place.repo, get_run(place.repo, run)) as log:
        for batch in _cut(log):
            _send(url, batch)
            sent += len(batch)
    say(f"sent: {count(sent, 'span')} to {url}")


def _cut(log: "LogTail") -> Iterator[list[dict[str, Any]]]:
    from relay.telemetry.otel import Spans

    spans, batch = Spans(), list[dict[str, Any]]()
    for record in log.read():
        batch.extend(spans.take(record))
        if len(batch) >= _BATCH:
            yield batch
            batch = []
    if batch := [*batch, *spans.finish()]:
        yield batch


def _send(url: str, spans: list[dict[str, Any]]) -> None:
    import urllib.request

    from relay.telemetry.otel import render_batch

    data = json.dumps(render_batch(spans, metadata.version("relay"))).encode()
    headers = {**_read_headers(os.environ.get("OTEL_EXPORTER_OTLP_HEADERS", "")), "Content-Type": "application/json"}
    request = urllib.request.Request(url, data=data, headers=headers)  # noqa: S310  # http or https, as checked above
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:  # noqa: S310
            answer.read(1 << 16)
    except OSError as error:
        raise ConfigError(f"the collector at {url} did not take the spans: {error}", hint="is it there?") from error


def _read_headers(text: str) -> dict[str, str]:
    """Read ``name=value,name=value``, values as in an address."""
    from urllib.parse import unquote

    pairs = (pair.partition("=") for pair in text.split(",") if "=" in pair)
    return {name.strip(): unquote(value.strip()) for name, _, value in pairs}
