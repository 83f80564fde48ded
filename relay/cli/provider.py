"""How a provider's models are reached, from the table of `templates/providers.toml`."""

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from relay.base.errors import RelayError
from relay.cli.screen import say
from relay.config import ModelSettings, find_user_dir
from relay.config.model_table import render_model_table, show_user_file
from relay.prompts.package_data import get_shipped
from relay.session.prices import parse_price

_MODEL = "NAME-OF-THE-MODEL"


def read_providers() -> Mapping[str, Mapping[str, Any]]:
    """Return all providers by name."""
    return tomllib.loads((get_shipped("templates") / "providers.toml").read_text(encoding="utf-8"))


def set_up(name: str, model: str | None, environ: Mapping[str, str]) -> None:
    """Print how to reach a provider's model, and begin the user's own settings where there are none.

    Raises:
        RelayError: There is no such provider, or the file cannot be written.
    """
    providers = read_providers()
    if name not in providers:
        raise RelayError(
            f"relay knows no provider {name!r}",
            hint=f"known: {', '.join(providers)}; any other endpoint needs ANTHROPIC_BASE_URL and its key",
        )
    provider = providers[name]
    for note in provider["notes"]:
        say(f"# {note}")
    say(f"export ANTHROPIC_BASE_URL={provider['base_url']}", exact=True)
    say(f"export ANTHROPIC_AUTH_TOKEN={provider['key'] or '…'}", exact=True)
    say("unset ANTHROPIC_API_KEY")
    say()
    _set_up_model(model or _MODEL, ModelSettings(price=_find_price(provider)), environ)
    say()
    say(f"relay doctor --model {model or _MODEL}   tries it, with two or three small requests")


def _find_price(provider: Mapping[str, Any]) -> Any:
    return parse_price("", {"input": 0, "output": 0}) if provider["local"] else None


def _set_up_model(model: str, known: ModelSettings, environ: Mapping[str, str]) -> None:
    text = f'model = "{model}"\n\n{render_model_table(model, known)}\n'
    folder = find_user_dir(environ)
    if model != _MODEL and folder is not None and _write_new(folder / "config.toml", text):
        say(f"# written to {show_user_file(environ)}:", style="green")
    else:
        say(f"# into {show_user_file(environ)}, which is yours and is not changed:")
    say(text.rstrip(), exact=True)


def _write_new(path: Path, text: str) -> bool:
    """Create a file; False when anything of that name is there."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return False
    except OSError as error:
        raise RelayError(f"{path} cannot be written: {error.strerror}") from error
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    return True
