"""What other caps of a tool's result would have saved in sessions of yours, and what they would have cut too much.

    python benchmarks/output_caps.py REPOSITORY … [--caps 1000,2000,5000] [--out DIR]

Reads the tapes of each repository (``.relay/history``): of a demo (``relay demo --keep DIR``), of your own work. Each
result that a model was shown is cut again, in the middle as relay cuts, at each cap. A cut saves its tokens in every
later request of the session. *Needed* counts the cuts of which a later call names a line or a path: the model would
have had to ask again, a request of its own each time. Without a repository it plays the demo and the three-phase job
of ``peers.py`` first, and writes ``output_caps.md``.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from processes import git

from relay.session.recall import Recall
from relay.session.usage import estimate_tokens
from relay.tools.workspace import OUTPUT_CAP_TOKENS, cut_middle
from tests.tapes import Taped, find_tapes, read_tape

HERE = Path(__file__).resolve().parent
CAPS = (250, 500, 1_000, 2_000, 4_000, 6_000)
_MARK = re.compile(r"\n… [\d,]+ tokens cut; x …\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A tool's result in a session, and what came after it."""

    text: str
    later_requests: int
    """How many requests of the session carried it."""
    later_calls: tuple[Any, ...]
    """Inputs of the calls behind it."""


def list_results(taped: list[Taped]) -> Iterator[Result]:
    """Yield the results of a session of the Messages API; the last request holds all of them."""
    counts = [len(exchange.body.get("messages", ())) for exchange in taped]
    messages = taped[-1].body.get("messages", ()) if taped else ()
    blocks = [
        (at, block)
        for at, message in enumerate(messages)
        for block in message["content"]
        if isinstance(block, dict) and block.get("type") in {"tool_use", "tool_result"}
    ]
    for n, (at, block) in enumerate(blocks):
        if block["type"] == "tool_result" and isinstance(text := block.get("content"), str):
            calls = tuple(later["input"] for _, later in blocks[n:] if later["type"] == "tool_use")
            yield Result(text=text, later_requests=sum(count > at for count in counts), later_calls=calls)


def cut(result: Result, cap: int) -> tuple[int, int, bool]:
    """Return the tokens cut from a result, those saved in all requests, and whether a later call needs them."""
    if estimate_tokens(result.text) <= cap:
        return 0, 0, False
    kept = cut_middle(result.text, "x", cap_tokens=cap)
    head, tail = _MARK.split(kept, maxsplit=1)
    recall = Recall()
    recall.show("cut", result.text[len(head) : len(result.text) - len(tail)], path="x")
    tokens = estimate_tokens(result.text) - estimate_tokens(kept)
    return tokens, tokens * result.later_requests, any(recall.find_uses(call) for call in result.later_calls)


def render_report(results: Sequence[Result], sessions: int, caps: Sequence[int], what: str) -> str:
    """Return the report as Markdown."""
    carried = sum(estimate_tokens(result.text) * result.later_requests for result in results)
    largest = max((estimate_tokens(result.text) for result in results), default=0)
    lines = ["| cap | results cut | tokens cut | saved in requests | of all results | needed |", "|" + " ---: |" * 6]
    for cap in caps:
        rows = [row for result in results if (row := cut(result, cap))[0]]
        saved = sum(row[1] for row in rows)
        cells = (cap, len(rows), sum(row[0] for row in rows), saved)
        share = saved / carried if carried else 0.0
        lines.append(f"| {' | '.join(f'{cell:,}' for cell in cells)} | {share:.1%} | {sum(row[2] for row in rows)} |")
    table = "\n".join(lines)
    return f"""# Caps of a tool's result, on sessions that were

`python benchmarks/output_caps.py` — {datetime.now(UTC).date()}, at {git(HERE, "rev-parse", "--short", "HEAD")}: {what};
{sessions} sessions, {len(results)} results, the largest of {largest:,} tokens; relay's cap is {OUTPUT_CAP_TOKENS:,}.

{table}

*Saved in requests*: the tokens that a cut takes out, times the requests that would have carried them. *Needed*: results
of whose cut part a later call names a line or a path; each would have cost a further request.

The cap stays: a lower one saves nothing in these sessions until it is so low that a large part of what it cuts is
needed again. Run it on your own repositories before you believe either.
"""


def play_own(place: Path) -> list[Path]:
    """Play the demo and the job of ``peers.py``; return their repositories."""
    from peers import RELAY, SAME, make_files, make_script
    from processes import make_environ, make_repository

    from tests.endpoint.script import parse_script
    from tests.endpoint.server import serve

    demo, job = place / "demo", place / "job"
    program = [sys.executable, "-P", "-m", "relay"]
    environ = make_environ("", PYTHONPATH=str(HERE.parent), XDG_CONFIG_HOME=str(place))
    subprocess.run([*program, "demo", "--keep", str(demo)], env=environ, check=True, capture_output=True)
    script = parse_script(make_script(RELAY, SAME))
    with serve(script) as server, make_repository(make_files()) as root:
        environ["ANTHROPIC_BASE_URL"] = server.base_url
        subprocess.run([*program, "run"], cwd=root, env=environ, check=True, capture_output=True)
        shutil.copytree(root / ".relay/history", job / ".relay/history")
    return [demo, job]


def main() -> None:
    """Replay, print, and write where no repository is named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--caps", default=",".join(map(str, CAPS)))
    parser.add_argument("--out", type=Path, default=HERE / "results")
    parser.add_argument("repositories", nargs="*", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        own = [] if options.repositories else play_own(Path(place).resolve())
        roots = [root.resolve() for root in options.repositories] or own
        tapes = [read_tape(path) for root in roots for path in find_tapes(root)]
    results = [result for taped in tapes for result in list_results(taped)]
    what = "the demo and the job of `peers.py`" if own else f"{len(roots)} repositories"
    report = render_report(results, len(tapes), [int(cap) for cap in options.caps.split(",")], what)
    print(report)
    if own:
        (options.out / "output_caps.md").write_text(report, encoding="utf-8")


if __name__ == "__main__":
    main()
