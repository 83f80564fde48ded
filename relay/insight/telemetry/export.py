"""Send a log to an OpenTelemetry collector during the run.

A thread reads the log from its file: the run waits for nothing, not even for the SDK's import (0.3 s). Ids equal those
that `relay report --otel` gives the finished log, so whatever is not taken now can be sent later.
"""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from relay.base.hints import advise_extra
from relay.base.words import count
from relay.insight.telemetry.log import LogTail
from relay.session.events import Noticed, Observe

EVERY_S = 5.0
"""Seconds between two looks at a growing log."""
LAST_S = 3.0
"""Seconds that the end of a run waits for the rest to be sent."""


@contextmanager
def exporting(  # a log, a collector and who is told
    log: LogTail, endpoint: str, environ: Mapping[str, str], run_id: str, tell: Observe, *, last_s: float = LAST_S
) -> Iterator[None]:
    """Send a log while it grows. At its end the rest has a moment, and a failure is reported once.

    Args:
        log: Closed at the end.
        endpoint: The collector's address, without the path.
        environ: As `relay.insight.telemetry.otel.Collector` reads it.
        tell: Receives a notice of the failure.
        last_s: Seconds that the end waits.
    """
    ended, failures = threading.Event(), list[str]()

    def work() -> None:
        with log:
            try:
                from relay.insight.telemetry.otel import Collector, CollectorError, Export
            except ImportError:
                failures.append(f"OpenTelemetry's SDK is not installed: {advise_extra('otel')}")
                return
            export, over = Export(log, Collector(endpoint, environ), run_id), False
            while not over:
                over = ended.wait(EVERY_S)
                try:
                    export.push(last=over)
                    failures[:] = [f"{count(export.lost, 'span')} were lost while it was away"] if export.lost else []
                except CollectorError as error:
                    failures.append(str(error))

    thread = threading.Thread(target=work, name="otel", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(last_s)
        if thread.is_alive():
            failures.append(f"{endpoint} did not take the last of it in time")
        if failures:
            again = f"`relay report --otel {run_id} --endpoint {endpoint}` sends the whole run"
            tell(Noticed(text=f"telemetry: {failures[-1]}; {again}", warning=True))
