"""All settings as one value."""

from collections.abc import Mapping
from dataclasses import field

from relay.meters.gauge import DEFAULT_RESET_AT, ResetAt, parse_reset_at
from relay.meters.prices import Price, normalize_model
from relay.plan.files import DEFAULT_PLAN
from relay.values import dataclass

CONTEXTS = ("reset", "none", "compact", "prune")
"""Strategies; `relay.runners.messages.strategies` says what each does."""
FEATURES = ("reset", "rules", "ledger", "cache", "spill")
"""What can be switched off, one by one:

reset    sessions are not handed over at the reset line; the run is one continuous session, as with ``none``
rules    AGENTS.md is not part of the prompt
ledger   what earlier sessions recorded is not shown to later ones
cache    nothing is marked for the prompt cache
spill    what is cut out of a long tool result is gone, not kept in a file that the model can read
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compat:
    """What the endpoint of one model takes of a request; None: what relay's table says, then what it refuses."""

    cache: str | None = None
    """Where requests are marked for the prompt cache: ``request`` (and its blocks), ``blocks`` only, or ``off``."""
    cache_hour: bool | None = None
    """Whether entries of the cache may live for one hour."""
    thinking: str | None = None
    """``adaptive``, ``budget`` (half of the longest answer), or ``off``: nothing is said of it."""
    thinking_display: bool | None = None
    """Whether summaries of the thinking may be asked for."""
    unsigned_thinking: bool | None = None
    """Whether thinking that came without a signature may be sent back; else it is left out."""
    system_messages: bool | None = None
    """Whether a system message may stand in mid-conversation; user text may always."""


AS_KNOWN = Compat()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    """What a user knows better about one model; None leaves the general setting or the Models API in charge."""

    reset_at: ResetAt | None = None
    window_tokens: int | None = None
    max_output_tokens: int | None = None
    price: Price | None = None
    """Only the user's to say: a cap in money is counted by it."""
    compat: Compat = AS_KNOWN


NOTHING_SET = ModelSettings()


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings of a command; the field names are the keys of the files."""

    plan: str = DEFAULT_PLAN
    """Path of the plan; not read from the plan's own front matter."""
    model: str = "claude-opus-5-5"
    effort: str | None = None
    """None sends none: the model's default."""
    runner: str = "api"
    """Who runs the sessions; `relay.runners.registry` knows all there are."""
    reset_at: ResetAt = field(default_factory=lambda: parse_reset_at(DEFAULT_RESET_AT))
    models: Mapping[str, ModelSettings] = field(default_factory=dict)
    max_cost_usd: float | None = 20.0
    """Cap of a plan; 0 lets nothing be sent, None (``none``) is no cap."""
    max_phase_cost_usd: float | None = None
    max_tokens_total: int | None = None
    max_legs: int = 6
    """Legs of one phase before relay asks for a split."""
    max_turns: int = 500
    """Requests of one session before it hands over: more than fit below a line whose tokens are counted rightly."""
    max_repairs: int = 3
    max_output_tokens: int | None = None
    """None leaves the choice to the runner and the model's limit."""
    max_wait_s: float = 1_800
    """The longest wait that a provider's limit may impose."""
    idle_timeout_s: float = 90
    """A response that sends nothing for so long has stalled."""
    cache_ttl: str = "auto"
    context: str = "reset"
    """What happens when the context fills: relay's own ``reset``, or one of the strategies that it is compared with."""
    ablate: tuple[str, ...] = ()
    """relay's own features that are switched off for this run, to find out what each is worth; never twice the same."""
    prices: tuple[Price, ...] = ()
    verify: tuple[str, ...] = ()
    command_timeout_s: float = 120
    """For one command of the model."""
    command_memory_mib: int | None = None
    """Memory that a command and all it starts may hold at once; None: three quarters of the machine's."""
    gate_timeout_s: float = 1_200
    """For one verify command."""
    sandbox: str = "auto"
    network: bool = False
    writable_dirs: tuple[str, ...] = ()
    """Absolute paths outside the repository that commands may write."""
    writable_links: bool = False
    """Commands may write files that are hard links out of the repository: a package manager's shared cache."""
    unreadable: tuple[str, ...] = ()
    """What commands and file tools may not read, beyond relay's own list: absolute paths, from ``~/`` on, or relative
    to the repository. The lists of all sources together."""
    env: tuple[str, ...] = ()
    """Names of environment variables that commands may see, beyond relay's own list."""
    rules_fallback_names: tuple[str, ...] = ()
    rules_max_bytes: int = 32 * 1024
    """Of all rules files together; 0 switches them off."""
    rules_root_markers: tuple[str, ...] = (".git",)
    rules_global_dir: str | None = None
    """Absolute directory of the user's own rules file; None: no global layer."""
    origins: Mapping[str, str] = field(default_factory=dict)
    """Where each value came from: ``--model``, ``RELAY_MODEL``, ``relay.toml:3``, ``default``."""

    def find_model(self, model: str) -> ModelSettings:
        """Return what is set for a model, under the id as written or its bare form; all None when nothing is."""
        return self.models.get(model) or self.models.get(normalize_model(model)) or NOTHING_SET

    @property
    def strategy(self) -> str:
        """How the context is kept from filling up: `context`, or ``none`` where the reset is switched off."""
        return "none" if "reset" in self.ablate else self.context

    def reset_at_for(self, model: str) -> ResetAt:
        """Return the reset line of a model: its own from the ``models`` table, unless one was typed for this run."""
        typed = self.origins.get("reset_at", "default").startswith(("--", "RELAY_"))
        return self.reset_at if typed else self.find_model(model).reset_at or self.reset_at
