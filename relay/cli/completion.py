"""`relay completion`: the shell's side of completion, and what relay offers there: plans, phases, models, runners.

It is asked at every press of a key: what is offered is read with as few imports as can be, and what cannot be read is
not offered.
"""

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from relay.base.tree import read_start
from relay.cli.screen import say

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

SHELLS = ("bash", "zsh", "fish")
_PHASE = re.compile(rb"^#{2,4}\s+(?:Phase|Task)\s+([\w.]{1,20})\b[^\n]*", re.MULTILINE)
_MAX_BYTES = 1024 * 1024
_VARIABLE = "_RELAY_COMPLETE"


HELP = """Print what makes a shell complete commands, options, plans, phases, models and runners.

\b
bash  eval "$(relay completion bash)"                             in ~/.bashrc
zsh   eval "$(relay completion zsh)"                              in ~/.zshrc
fish  relay completion fish > ~/.config/fish/completions/relay.fish
"""


@click.command("completion", help=HELP, short_help="Print what makes a shell complete relay's commands.")
@click.argument("shell", type=click.Choice(SHELLS), help="The shell that reads it.")
def command(shell: str) -> None:
    """Print what makes a shell complete commands, options, plans, phases, models and runners."""
    from click.shell_completion import get_completion_class

    from relay.cli.main import relay

    kind = get_completion_class(shell)
    if kind is not None:
        # Filled in here: click's own `source` starts a bash to ask for its version.
        completion = kind(relay, {}, "relay", _VARIABLE)
        say(completion.source_template % completion.source_vars(), exact=True)


def offer_plans(_ctx: click.Context, _: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    """Offer the files that are there."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="file")]


def offer_phases(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Offer the numbered phases of the plan."""
    plan = Path(ctx.params.get("plan") or os.environ.get("RELAY_PLAN") or "PLAN.md")
    found = [number.decode() for number in _PHASE.findall(_read(plan))]
    return _fit([*found, *(("next", "all") if ctx.info_name == "run" else ())], incomplete)


def offer_models(_ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Offer the models of relay's table and of the settings."""
    from relay.session.prices import MODEL_LIMITS

    return _fit([*_list_named("models"), *MODEL_LIMITS], incomplete)


def offer_runners(_ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Offer relay's own loop, and the agents that relay and the settings know."""
    from relay.runners.agents.profiles import PROFILES

    return _fit(["api", *_list_named("agents"), *PROFILES], incomplete)


def _list_named(key: str) -> Iterable[str]:
    """Yield the names of the tables below a key of the repository's settings and the user's own."""
    from relay.base.toml_text import parse_toml
    from relay.config.sources import find_user_dir

    own = find_user_dir(os.environ)
    for file in (Path("relay.toml"), *([own / "config.toml"] if own else [])):
        try:
            tables = parse_toml(_read(file).decode()).get(key, {})
        except ValueError:
            continue
        yield from tables if isinstance(tables, dict) else ()


def _read(file: Path) -> bytes:
    try:
        return read_start(file, _MAX_BYTES) or b""
    except OSError:
        return b""


def _fit(words: Iterable[str], incomplete: str) -> list[str]:
    return [word for word in dict.fromkeys(words) if word.startswith(incomplete) and word.isprintable()]
