"""The commands as click knows them, as the site's page, as a manual page and as completions of shells.

`python -m tests.cli.manual` writes share/, which the wheel installs; `docs/conf.py` puts the page into the site.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from relay import __version__
from relay.base.errors import ExitCode
from relay.cli.main import relay
from relay.config.keys import KEYS

SHARE = Path(__file__).parents[2] / "share"
NAMES = ("relay", "relay-build")
PLACES = {
    "bash": "bash-completion/completions/{}",
    "zsh": "zsh/site-functions/_{}",
    "fish": "fish/vendor_completions.d/{}.fish",
}
EXITS = {
    ExitCode.DONE: "All that you asked for is done.",
    ExitCode.USER: "You must act.",
    ExitCode.USAGE: "The command line is wrong.",
    ExitCode.BUG: "relay itself failed; a log is ready to paste.",
    ExitCode.STOPPED: "Stopped with work left.",
    ExitCode.INTERRUPTED: "Interrupted; the next run goes on.",
}


def walk(command: click.Command, context: click.Context) -> Iterator[tuple[click.Command, click.Context]]:
    """Yield a command and all commands below it that are shown, each with its context."""
    yield command, context
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            if inner is not None and not inner.hidden:
                yield from walk(inner, click.Context(inner, info_name=name, parent=context))


def list_commands() -> list[tuple[click.Command, click.Context]]:
    """Return each command that is shown, the group itself first."""
    return list(walk(relay, click.Context(relay, info_name="relay")))


def list_parameters(command: click.Command, context: click.Context) -> list[tuple[str, str]]:
    """Return each argument and option as it is typed, with its help."""
    found = (parameter.get_help_record(context) for parameter in command.get_params(context))
    return [(names, " ".join(words.split())) for names, words in filter(None, found)]


def write_usage(command: click.Command, context: click.Context) -> str:
    return " ".join((context.command_path, *command.collect_usage_pieces(context)))


def list_paragraphs(command: click.Command) -> list[tuple[bool, str]]:
    """Return the paragraphs of a command's help, each with whether its lines stay as they are."""
    text = (command.help or "").partition("\f")[0].strip()
    parts = re.split(r"\n\s*\n", text)
    return [(part.startswith("\b"), part.removeprefix("\b\n")) for part in parts if part]


# The site


def write_options_page() -> str:
    """Return all commands with their arguments and options, as Markdown."""
    return "\n".join(line for command, context in list_commands()[1:] for line in _list_lines(command, context))


def _list_lines(command: click.Command, context: click.Context) -> Iterator[str]:
    depth = 2 + context.command_path.count(" ")
    yield f"\n{'#' * depth} {context.command_path}\n\n```text\n{write_usage(command, context)}\n```\n"
    for stays, text in list_paragraphs(command):
        yield f"```text\n{text}\n```\n" if stays else f"{_escape(' '.join(text.split()))}\n"
    for names, words in list_parameters(command, context):
        yield f"- `{names}`: {_escape(words)}"


def _escape(text: str) -> str:
    """Write what Markdown would read as markup, outside of code spans."""
    parts = re.split(r"(`[^`]+`)", text)
    return "".join(part if part.startswith("`") else re.sub(r"([\\*_<>\[\]{}])", r"\\\1", part) for part in parts)


# The manual page


def write_manual() -> str:
    """Return the manual page relay(1)."""
    (top, context), *rest = list_commands()
    parts = [
        f'.TH RELAY 1 "" "relay {__version__}" "User Commands"',
        ".SH NAME\nrelay, relay\\-build \\- run a long build as a relay of fresh LLM sessions",
        f".SH SYNOPSIS\n.B {_roff(write_usage(top, context))}",
        ".SH DESCRIPTION",
        *map(_write_paragraph, list_paragraphs(top)),
        "relay and relay\\-build are the same program.",
        ".SH OPTIONS",
        *_list_records(list_parameters(top, context)),
        ".SH COMMANDS",
    ]
    for command, inner in rest:
        parts.append(f".SS {_roff(inner.command_path)}\n.nf\n.B {_roff(write_usage(command, inner))}\n.fi")
        parts += map(_write_paragraph, list_paragraphs(command))
        parts += _list_records(list_parameters(command, inner))
    parts += [".SH EXIT STATUS", *_list_records([(str(int(code)), words) for code, words in EXITS.items()])]
    parts += [".SH ENVIRONMENT", *_list_records(_list_variables())]
    parts += [".SH FILES", *_list_records(FILES)]
    parts.append(".SH SEE ALSO\n.BR git (1),\n.BR bwrap (1)")
    return "\n".join(parts) + "\n"


FILES = [
    ("PLAN.md", "The plan: phases, items, verify commands."),
    ("relay.toml", "Settings of the repository."),
    ("~/.config/relay/config.toml", "Your own settings."),
    (".relay/", "Logs, reports and outputs; nothing is lost with it."),
]


def _list_variables() -> Iterator[tuple[str, str]]:
    yield "ANTHROPIC_API_KEY, ANTHROPIC_BASE_URL", "Key and address of the endpoint."
    names = ", ".join(f"RELAY_{name.upper()}" for name in KEYS)
    yield "RELAY_*", f"A setting each: {names}."


def _list_records(records: object) -> list[str]:
    return [f".TP\n.B {_roff(names)}\n{_roff(words)}" for names, words in records]  # type: ignore[attr-defined]


def _write_paragraph(part: tuple[bool, str]) -> str:
    stays, text = part
    if stays:
        return ".PP\n.nf\n" + "\n".join(map(_roff, text.splitlines())) + "\n.fi"
    return f".PP\n{_roff(' '.join(text.split()))}"


def _roff(text: str) -> str:
    """Write a text so that roff shows it as it is, in ASCII with the names of other signs."""
    signs = {"—": "\\(em", "–": "\\(en", "…": "...", "→": "\\(->", "≥": "\\(>=", "≤": "\\(<=", "×": "\\(mu"}
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq")
    text = "".join(signs.get(sign, sign) for sign in text)
    return f"\\&{text}" if text.startswith((".", "\\(aq")) else text


# Completions


def write_completion(shell: str, name: str) -> str:
    """Return what makes a shell complete the command under one of its names."""
    kind = get_completion_class(shell)
    assert kind is not None
    completion = kind(relay, {}, name, "_RELAY_COMPLETE")
    return completion.source_template % completion.source_vars() + "\n"


def render() -> dict[str, str]:
    """Return each file below share/ with its text."""
    manuals = {"man/man1/relay.1": write_manual(), "man/man1/relay-build.1": ".so man1/relay.1\n"}
    shells = {PLACES[shell].format(name): write_completion(shell, name) for shell in PLACES for name in NAMES}
    return manuals | shells


def main() -> int:
    """Write the files anew."""
    for place, text in render().items():
        path = SHARE / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
