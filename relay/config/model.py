"""All settings as one value."""

from collections.abc import Mapping
from dataclasses import field

from relay.base.values import dataclass
from relay.config.agents import AgentSettings
from relay.config.network import CLOSED, Network
from relay.config.news import Channel
from relay.config.servers import ServerSettings
from relay.plan.text import DEFAULT_PLAN
from relay.session.gauge import DEFAULT_RESET_AT, ResetAt, parse_reset_at
from relay.session.prices import Price, normalize_model

CONTEXTS = ("reset", "none", "compact", "prune")
"""Strategies; `relay.runners.messages.conversation` says what each does."""
COMMIT_HOOKS = ("pre-commit", "prepare-commit-msg", "commit-msg")
"""Hooks that git runs for a commit and that can refuse it, in git's order."""
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
    """Where its sessions hand off."""
    window_tokens: int | None = None
    """Its context window."""
    max_output_tokens: int | None = None
    """Its longest answer."""
    price: Price | None = None
    """USD per million tokens, ``{input, output, write_5m?, write_1h?, read?}``; what is left out is 1.25, 2 and 0.1
    times the price of input. Yours alone: a cap in money is counted by it."""
    compat: Compat = AS_KNOWN
    """What its endpoint takes of a request."""


NOTHING_SET = ModelSettings()


MOST_JOBS = 64
"""Phases at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings of a command; the field names are the keys of the files."""

    plan: str = DEFAULT_PLAN
    """Path of the plan, not read from the plan's own front matter; inside of the repository where its files say it."""
    model: str = "claude-opus-5-5"
    """The model of every session; what is known of it stands in `models`."""
    effort: str | None = None
    """How hard the model thinks; ``none`` sends nothing: the model's default."""
    runner: str = "api"
    """Who runs the sessions: ``api`` is relay's own loop on the Messages API, others are agents (`relay agents`). A
    phase of the plan may name its own: ``Runner: claude``."""
    agents: Mapping[str, AgentSettings] = field(default_factory=dict)
    """Agents of your own, and what is different about one that relay knows: program, variables, files, login. Yours
    alone; `docs/agents.md` has examples."""
    mcp_servers: Mapping[str, ServerSettings] = field(default_factory=dict)
    """Tool servers for phases that name them (``Tools: postgres``), by the Model Context Protocol: a program in the
    sandbox, or an address. Yours alone."""
    reset_at: ResetAt = field(default_factory=lambda: parse_reset_at(DEFAULT_RESET_AT))
    """Where a session hands off to a fresh one: a part of the model's window, a number of tokens, or the lower of
    both."""
    models: Mapping[str, ModelSettings] = field(default_factory=dict)
    """What is known better of a model than its endpoint says; a price is yours alone. The tables of all sources count
    together, the stronger first."""
    max_cost_usd: float | None = 20.0
    """Cap of a plan in USD; 0 lets nothing be sent, ``none`` is no cap."""
    max_phase_cost_usd: float | None = None
    """Cap of a phase in USD."""
    max_tokens_total: int | None = None
    """Cap of a plan in tokens of all kinds; it also serves where a price is not known."""
    max_legs: int = 6
    """Legs of one phase before relay asks for a split."""
    max_turns: int = 500
    """Requests of one session before it hands over: more than fit below a line whose tokens are counted rightly."""
    max_repairs: int = 3
    """Attempts at repairing a red gate."""
    review: str = "off"
    """Whether fresh sessions review work before its commit: of each ``phase``, or of the ``plan`` with its last one."""
    review_model: str | None = None
    """The model of these sessions; ``none`` is that of the others."""
    review_runner: str | None = None
    """Who runs these sessions; ``none`` is who runs the phase."""
    review_max_cost_usd: float | None = None
    """Cap of one review in USD; ``none`` is a quarter of the phase's cap, or of the plan's where a phase has none."""
    max_output_tokens: int | None = None
    """Longest answer; ``none`` leaves it to the runner and the model's limit."""
    max_wait_s: float = 1_800
    """Seconds; the longest wait that a provider's limit may impose."""
    idle_timeout_s: float = 90
    """Seconds; a response that sends nothing for so long has stalled."""
    agent_idle_timeout_s: float = 600
    """Seconds; an agent that does nothing for so long, no request, no tool, no new word, is ended. While one of its
    tools runs it is twelve times that."""
    cache_ttl: str = "auto"
    """How long entries of the prompt cache live; ``auto`` takes the hour when an answer and the commands behind it have
    taken close to five minutes in this run."""
    """Whether the prompt of relay's own loop is kept in the cache through a wait that outlasts it (a gate, commands, a
    pause), by requests that generate nothing, where that saves more than it costs."""
    context: str = "reset"
    """What happens when the context fills: relay's own ``reset``, or one of the strategies that it is compared with."""
    trial: tuple[str, ...] = ()
    """Reset lines to try against each other, ``{reset_at = ["60k", "100k", "none"]}``: each phase gets one by a hash of
    its text, and `relay tune` compares what came of it."""
    history: bool = True
    """Whether `.relay/history/` keeps for 30 days what each session and its endpoint said, for `relay replay`; secrets
    are left out, and a repository may only switch it off."""
    ablate: tuple[str, ...] = ()
    """relay's own features that are switched off for this run, to find out what each is worth; never twice the same."""
    prices: tuple[Price, ...] = ()
    """Prices by model in a table of their own; `models` can say the same."""
    verify: tuple[str, ...] = ()
    """Commands that every phase must pass, besides its own ``Verify:`` line."""
    setup: tuple[str, ...] = ()
    """Commands with network that install what sessions need, before the first and when a lock file changed. What a
    repository asks for runs once you have approved it."""
    jobs: int = 1
    """How many phases run side by side, each in a work tree of its own beside the repository; `relay check` shows which
    can."""
    copy: tuple[str, ...] = ()
    """Files and folders that git ignores and a build needs: copied into each of these work trees when it is made."""
    command_timeout_s: float = 120
    """Seconds for one command of the model, and for an agent to end its step where you ask a run to stop."""
    command_memory_mib: int | None = None
    """MiB of memory that a command and all it starts may hold at once; ``none``: three quarters of the machine's."""
    gate_timeout_s: float = 1_200
    """Seconds for one verify command."""
    sandbox: str = "auto"
    """``auto`` is bubblewrap. ``container``, inside of one, runs commands without a sandbox of their own: the container
    is the wall. ``off`` lets commands do whatever you may do. Each commit says it, and it is yours alone."""
    hooks: tuple[str, ...] = COMMIT_HOOKS
    """Which of your commit hooks are run: ``run`` is all of them, ``skip`` none."""
    commit_subject: str = "relay: {subject}"
    """Form of the subjects that relay itself gives its commits, and of a session's that a commit-msg hook refuses."""
    network: Network = CLOSED
    """What commands reach: nothing; with ``true`` this machine's whole network, its own services included; with
    ``{ hosts = ["registry.npmjs.org"] }`` these hosts by HTTPS."""
    localhost: tuple[int, ...] = ()
    """Ports of this machine's loopback that commands reach."""
    sockets: tuple[str, ...] = ()
    """Unix sockets of this machine that commands reach: ``docker``, ``podman``, absolute paths."""
    writable_dirs: tuple[str, ...] = ()
    """Paths outside the repository that commands may write, absolute or from ``~/`` on."""
    readable_dirs: tuple[str, ...] = ()
    """Directories, written in the same way, that commands may read though they are in a home directory or another place
    that is hidden: a package beside this one, test data, an environment that the plan does not name."""
    env_file: str | None = None
    """A hidden file of the repository, such as ``.env.test``, that gates may read all the same, and sessions not. Its
    values are taken out of what gates print, and those that are secrets by their name or login out of all that goes to
    a model, in JSON, addresses, HTML, base64 and hex too. A test that a session wrote can print them otherwise: name
    credentials of tests, not your own."""
    writable_links: bool = False
    """Commands may write files that are hard links out of the repository: a package manager's shared cache."""
    unreadable: tuple[str, ...] = ()
    """What commands and file tools may not read, beyond relay's own list: absolute paths, from ``~/`` on, or relative
    to the repository. The lists of all sources together."""
    env: tuple[str, ...] = ()
    """Names of environment variables that commands may see, beyond relay's own list."""
    notify: tuple[Channel, ...] = ()
    """Whom a run calls when it is done or needs you: by any service that Apprise knows (ntfy, Slack, Discord, mail …),
    the desktop or a program. Yours alone; it says nothing of the repository unless ``details`` is true. `docs/news.md`
    has examples."""
    otel_endpoint: str | None = None
    """Address of an OpenTelemetry collector (OTLP over HTTP, such as ``http://localhost:4318``) that a run sends its
    spans and metrics to while it is at work, as `relay report --otel` does; nothing of its content. Yours alone."""
    rules_fallback_names: tuple[str, ...] = ("CLAUDE.md", "GEMINI.md")
    """Rules files to read where a folder has no AGENTS.md; the first one that is there counts. An empty list reads
    AGENTS.md only. A repository may name text files (``.md``, ``.mdc``, ``.txt``, ``.rst``) and ``.cursorrules``."""
    rules_max_bytes: int = 32 * 1024
    """Bytes of all rules files together; 0 switches them off."""
    rules_root_markers: tuple[str, ...] = (".git",)
    """What the top directory holds up to which rules files are looked for."""
    rules_global_dir: str | None = None
    """Directory of your own rules file; ``none``: no global layer."""
    of_repository: frozenset[str] = frozenset()
    """Keys whose value is a repository file's wish."""
    origins: Mapping[str, str] = field(default_factory=dict)
    """Where each value came from: ``--model``, ``RELAY_MODEL``, ``relay.toml:3``, ``default``."""

    def find_model(self, model: str) -> ModelSettings:
        """Return what is set for a model, under the id as written or its bare form; all None when nothing is."""
        return self.models.get(model) or self.models.get(normalize_model(model)) or NOTHING_SET

    def runner_for(self, wish: str) -> str:
        """Return who runs a phase: what was typed for this run, else what the phase says (may be empty), else ours."""
        typed = self.origins.get("runner", "default").startswith(("--", "RELAY_"))
        return self.runner if typed or not wish else wish

    @property
    def strategy(self) -> str:
        """How the context is kept from filling up: `context`, or ``none`` where the reset is switched off."""
        return "none" if "reset" in self.ablate else self.context

    def reset_at_for(self, model: str) -> ResetAt:
        """Return the reset line of a model: its own from the ``models`` table, unless one was typed for this run."""
        typed = self.origins.get("reset_at", "default").startswith(("--", "RELAY_"))
        return self.reset_at if typed else self.find_model(model).reset_at or self.reset_at
