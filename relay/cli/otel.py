"""`relay otel`: a run's log as OpenTelemetry spans and metrics."""

import os

import click

from relay.base.errors import ConfigError
from relay.base.words import count
from relay.cli.boundary import note_place
from relay.cli.screen import say
from relay.cli.watch import get_run, open_tail


@click.command("otel", short_help="Send a run's log to an OpenTelemetry collector.")
@click.argument("run", required=False, default="", help="The run's id; the newest one when left out.")
@click.option(
    "--endpoint", metavar="URL", help="Where; else OTEL_EXPORTER_OTLP_ENDPOINT, or port 4318 of this machine."
)
def command(run: str, *, endpoint: str | None) -> None:
    """Send a run's log as spans and metrics (OTLP over HTTP): the run, its sessions, answers, tool calls and gates.

    RUN is the beginning of a run's id; the last run when left out. Names, times, tokens and costs are sent; what was
    said, read or run is not. Nothing is sent unless you type this, or set otel_endpoint, which has runs send theirs
    while they are at work; a log that is sent twice has the same spans.
    """
    place = note_place()
    from relay.insight.telemetry.collector import DEFAULT, Collector, CollectorError, Export

    url = endpoint or os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT") or DEFAULT
    if not url.startswith(("http://", "https://")):
        raise ConfigError(f"{url} is no address of a collector", hint=f"--endpoint {DEFAULT}")
    run_id = get_run(place.repo, run)
    with open_tail(place.repo, run_id) as log:
        export = Export(log, Collector(url, os.environ), run_id)
        try:
            export.push(last=True)
        except CollectorError as error:
            raise ConfigError(str(error), hint=error.hint) from None
    metrics = "its metrics" if export.takes_metrics else "no metrics, which are not taken there"
    say(f"sent to {url}: {count(export.sent, 'span')} and {metrics}")
