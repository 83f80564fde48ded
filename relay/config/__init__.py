"""Settings: where each value comes from, what is allowed, and who may say it.

Precedence: flag, ``RELAY_*`` variable, the plan's front matter, ``relay.toml`` (or ``[tool.relay]`` in
``pyproject.toml``), the user's ``config.toml``, default. Every value keeps its origin.

A cloned repository is not its user. From its two files (plan and relay.toml)

- what widens the sandbox, names the user's environment or sets prices is refused (`Key.widens`), whether
  or not something with precedence overrides it;
- a spending cap may be lowered, never raised above what would hold without them: the user's own config
  file, or the default. ``none`` there counts as the user's word. Flags and variables override them anyway.

An endpoint or a key is no setting at all: they come from ``ANTHROPIC_BASE_URL`` and ``ANTHROPIC_API_KEY``.
"""

from relay.config.model import ModelSettings, Settings
from relay.config.sources import find_user_dir, load_settings

__all__ = ["ModelSettings", "Settings", "find_user_dir", "load_settings"]
