"""Write docs/reference/settings.md from what relay reads settings by; `make docs` calls it."""

import sys
from collections.abc import Iterator
from typing import Any, get_args, get_type_hints

import click
from msgspec import Struct

from relay.cli.main import COMMANDS, relay
from relay.config.decoding import describe, name_allowed
from relay.config.keys import KEYS, Key
from relay.config.model import Compat, ModelSettings, Settings
from relay.config.schema import describe_fields
from relay.config.sources import NO_SETTING
from relay.setup.doctor import render_value

HEAD = """\
# Settings

`make docs` writes this page from the code; CI compares the two. `relay doctor --settings` shows each value and its
source.

relay reads a setting from these sources, the strongest first: a flag, a variable `RELAY_…`, the plan's front matter
(`relay: {max_sessions: 2}`), `relay.toml` in the repository's root (or `[tool.relay]` in `pyproject.toml`), your own
`~/.config/relay/config.toml` (`$XDG_CONFIG_HOME/relay/config.toml`), the default. `relay init` creates a `relay.toml`
with every default. `relay init --schema` prints a JSON Schema for editors (with Taplo: `#:schema ./relay.schema.json`
in the first line).

**Yours alone** are settings that widen a session's reach, or what it may cost. Set them by flags, by variables or in
your own file. In the plan or in `relay.toml` they are an error, because there the author of the repository would set
them, not you. Those files may lower a cap on spending, never raise it.

Endpoint and key are not settings. relay reads the variables `ANTHROPIC_BASE_URL`, `ANTHROPIC_API_KEY` or
`ANTHROPIC_AUTH_TOKEN`, and `ANTHROPIC_CUSTOM_HEADERS` (`Name: value` on each line).

In a variable, separate the entries of a list by commas, the commands of `verify` by line ends. Tables in a variable
are JSON, and lists may be.

"""
MODELS = """\
## One model

```toml
[models."qwen3-coder"]
window_tokens = 65536
max_output_tokens = 8192
price = {input = 0, output = 0}          # yours alone: in your own file
compat = {cache = "off", thinking = "off"}
```

`relay doctor --model qwen3-coder` tries a model and prints its table. For what `compat` does not say, relay uses its
own table, and then leaves out what the endpoint refuses. relay never asks for `count_tokens`.

"""


def render() -> str:
    """Return the page."""
    flags, words, defaults = dict(_iter_flags()), describe_fields(Settings), Settings()
    parts = [HEAD]
    for name, key in KEYS.items():
        default = render_value(getattr(defaults, name))
        parts.append(f"## `{name}`\n\n{words[name]}\n\n{_describe(key, default, flags.get(name, ''), name)}\n\n")
        if isinstance(getattr(defaults, name), Struct):
            fields = describe_fields(type(getattr(defaults, name)))
            parts += [*(f"- `{name}.{field}`: {text}\n" for field, text in fields.items()), "\n"]
    parts.append("## No settings\n\nrelay refuses these names, and says what to do instead.\n\n")
    parts += [f"- `{name}`: {words}.\n" for name, words in NO_SETTING.items()]
    parts.append(f"\n{MODELS}")
    parts += [f"- `{name}`: {text}\n" for name, text in describe_fields(ModelSettings).items()]
    hints, compat = get_type_hints(Compat, include_extras=True), describe_fields(Compat)
    parts += [f"- `compat.{name}` ({_name_allowed(get_args(hints[name])[0])}): {compat[name]}\n" for name in hints]
    return "".join(parts)


def _describe(key: Key, default: str, flag: str, name: str) -> str:
    whose = "a repository may lower it" if key.cap else _name_owner(name, key)
    parts = [
        f"Allowed: {_name_allowed(key.kind)}.",
        f"Default: `{default}`.",
        f"Variable: `RELAY_{name.upper()}`.",
    ]
    return " ".join([*parts, *([f"Flag: `{flag}`."] if flag else []), *([f"{whose.capitalize()}."] if whose else [])])


def _name_owner(name: str, key: Key) -> str:
    """Say whose a setting is; where only some values are the user's, its words say so."""
    partly = {"plan", "models", "paths", "sandbox", "rules_fallback_names"}
    return "" if key.widens is Key().widens or name in partly else "yours alone"


def _name_allowed(kind: Any) -> str:
    (schema,), parts = describe(kind)
    return name_allowed(schema, parts)


def _iter_flags() -> Iterator[tuple[str, str]]:
    """Yield the flags that set something."""
    from relay.cli.options import _SETTINGS

    ctx = click.Context(relay)
    for command in (relay.get_command(ctx, name) for name in COMMANDS if name in {"run", "plan"}):
        for param in command.params if command else ():
            if isinstance(param, click.Option) and param.name in (*_SETTINGS, "plan"):
                yield param.name, param.opts[0]


if __name__ == "__main__":
    sys.stdout.write(render())
