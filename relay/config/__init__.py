"""Settings: the origin of each value, its allowed forms, and who may set it.

Precedence: flag, ``RELAY_*`` variable, the plan's front matter, ``relay.toml`` (or ``[tool.relay]`` in
``pyproject.toml``), the user's ``config.toml``, default. Every value keeps its origin.

The author of a cloned repository is not its user. In the repository's files (plan and relay.toml)

- settings that widen the sandbox, name the user's environment or set prices are refused (`Key.widens`), even if a
  stronger source overrides them;
- a spending cap may be lower, but never above the value without these files: that of the user's own config file, or
  the default. ``none`` there counts as the user's value. Flags and variables override all of them.

Endpoints and keys are no settings: they come from ``ANTHROPIC_BASE_URL`` and ``ANTHROPIC_API_KEY``.
"""

from relay.config.model import ModelSettings, Settings
from relay.config.sources import find_user_dir, load_settings

__all__ = ["ModelSettings", "Settings", "find_user_dir", "load_settings"]
