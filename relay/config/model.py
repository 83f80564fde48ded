"""All settings as one value."""

from collections.abc import Mapping
from dataclasses import field
from typing import Annotated

from msgspec import Meta, Struct

from relay.base.values import dataclass
from relay.config.agents import Agents
from relay.config.decoding import Text, Variable, choice, matching, told
from relay.config.network import CLOSED, Network
from relay.config.news import Channels
from relay.config.servers import Servers
from relay.plan.statements import EFFORTS, MODEL_NAME, RUNNER_NAME
from relay.plan.text import DEFAULT_PLAN
from relay.session.gauge import DEFAULT_RESET_AT, ResetAt
from relay.session.prices import Price, UserPrice, normalize_model

OWN_LOOP = "api"
"""The runner that is relay's own loop; every other name is an agent's."""
CONTEXTS = ("reset", "none", "compact", "edit")
"""Strategies for a full context; `relay.runners.messages.conversation` describes them."""
COMMIT_HOOKS = ("pre-commit", "prepare-commit-msg", "commit-msg")
"""Hooks that can refuse a commit, in the order in which git runs them."""
PROVIDERS = ("anthropic", "bedrock", "vertex", "foundry", "aws")
FEATURES = ("reset", "rules", "ledger", "cache", "spill", "consolidate", "explore", "skills", "preload")
"""Features that an arm of `relay lab compare` can switch off, one by one. Without the feature:

reset    sessions do not hand over at the reset line; the run is one continuous session, as with ``none``
rules    the prompt has no AGENTS.md
ledger   sessions do not see what earlier sessions recorded
cache    requests mark nothing for the prompt cache
spill    the part cut out of a long tool result is lost, not kept in a file that the model can read
consolidate  sessions are not told, at 65 % of the reset line, to finish and to record what is done
explore  no session can have a fresh one find something out for it
skills   sessions are not told of ``.agents/skills``
preload  the first message holds no files that the phase names; a session reads them
"""


MOST_JOBS = 64
"""Phases at once."""
_DAY_S = 86_400
_SUBJECT = r"[^{}\x00-\x1f\x7f]{0,40}\{subject\}[^{}\x00-\x1f\x7f]{0,40}"
_CHANGE = rf"effort=(?:{'|'.join(EFFORTS)})|(?:model|fallback)={MODEL_NAME}"
_ABSOLUTE = r"/[^\0\n]*[^\0\n/]"
_Tokens = Annotated[int, Meta(ge=1, le=10**9)]
_Usd = Annotated[float, Meta(ge=0, le=10**6)]
_Seconds = Annotated[float, Meta(ge=1, le=_DAY_S)]
_Model = Annotated[str, matching("a model id", MODEL_NAME)]
_Runner = Annotated[str, matching("the name of a runner", RUNNER_NAME)]
_Inside = Annotated[
    str,
    matching(
        "a path relative to the repository, without .. and .git",
        r"(?!/)(?!(?:.*/)?\.(?:\.|[gG][iI][tT])(?:/|$))[^\0\n]+",
    ),
]
_Outside = Annotated[
    tuple[Annotated[str, matching("a path", rf"~/[^\0\n]*[^\0\n/]|{_ABSOLUTE}")], ...],
    told("a list of paths, absolute or from ~/ on"),
]
_Hidden = Annotated[str, matching("a path", r"(?!(?:~/)?(?:\.?/)*\.?$)(?!~$)(?!(?:.*/)?\.\.(?:/|$))[^\0\n]+")]
_Commands = Annotated[tuple[Annotated[str, matching("a command", r"[^\0]*\S[^\0]*")], ...], told("a list of commands")]
_FileNames = Annotated[
    tuple[Annotated[str, matching("a name", r"(?!\.\.?$)[^/\0\n]{1,255}")], ...], told("a list of plain file names")
]


class Compat(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Features of the Messages API that a model's endpoint accepts.

    None: relay uses its own table, and then leaves out what the endpoint refuses.
    """

    cache: Annotated[str, choice("request", "blocks", "off")] | None = None
    """Where requests have marks for the prompt cache: ``request`` (and its blocks), ``blocks`` only, or ``off``."""
    cache_hour: bool | None = None
    """Whether cache entries may live for one hour."""
    thinking: Annotated[str, choice("adaptive", "budget", "off")] | None = None
    """``adaptive``, ``budget`` (half of the longest answer), or ``off``: requests do not mention thinking."""
    thinking_display: bool | None = None
    """Whether requests may ask for summaries of the thinking."""
    system_messages: bool | None = None
    """Whether a system message may stand in mid-conversation; user text always may."""
    pictures: bool | None = None
    """Whether the model takes pictures (PNG, JPEG, WebP) that `read` shows."""


AS_KNOWN = Compat()


class ModelSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A user's facts about one model. None leaves a fact to the general setting or the Models API."""

    reset_at: ResetAt | None = None
    """Its sessions' reset line."""
    window_tokens: _Tokens | None = None
    """Its context window."""
    max_output_tokens: _Tokens | None = None
    """Its longest answer."""
    price: UserPrice | None = None
    """USD per million tokens, ``{input, output, write_5m?, write_1h?, read?}``; the optional prices default to 1.25, 2
    and 0.1 times the price of input. Yours alone, because caps in USD depend on it."""
    compat: Compat = AS_KNOWN
    """Features that its endpoint accepts."""


NOTHING_SET = ModelSettings()


class Roles(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who does what is no phase's work; None: whoever works on the phase."""

    plan: _Model | None = None
    """The model of planning sessions."""
    explore: _Model | None = None
    """The model of the explorers that sessions ask (tool `explore`)."""
    review: _Model | None = None
    """The model of reviews, and of the critics of a plan."""
    review_runner: _Runner | None = None
    """The runner of reviews, and of the critics of a plan."""


NO_ROLES = Roles()


class Paths(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Paths that commands may use, or may not, other than relay decides itself."""

    write: _Outside = ()
    """Directories that commands may write and read: absolute, or from ``~/`` on."""
    read: _Outside = ()
    """Directories that commands may read: absolute, or from ``~/`` on."""
    hide: Annotated[
        tuple[_Hidden, ...], told("a list of paths: absolute, from ~/ on, or relative to the repository; without `..`")
    ] = ()
    """Paths that neither commands nor file tools may read: absolute, from ``~/`` on, or relative to the repository."""


NO_PATHS = Paths()


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings of a command; the field names are the keys of the files."""

    plan: Annotated[str, matching("a path", r"[^\0\n]+")] = DEFAULT_PLAN
    """Path of the plan file; where nothing sets it, the nearest PLAN.md from the current directory up to the root. The
    plan's own front matter cannot set it; repository files can only name a path inside the repository."""
    model: _Model = "claude-opus-5-5"
    """The model of every session; `models` holds facts about it. A phase may name its own: ``Model: claude-haiku-5-5``.
    """
    effort: Annotated[str, choice(*EFFORTS)] | None = None
    """How hard the model thinks; ``none`` leaves it to the model's default. A phase may say its own: ``Effort: high``.
    """
    roles: Roles = NO_ROLES
    """Models of sessions that do not work on a phase: ``{plan = "ID", explore = "ID", review = "ID"}``, and the runner
    of reviews, ``review_runner``. Where a role has none, it has the model (and runner) of the other sessions."""
    escalate: Annotated[
        tuple[Annotated[str, matching("a change", _CHANGE)], ...],
        told(f"a list of effort={'|'.join(EFFORTS)}, model=ID and fallback=ID"),
    ] = ()
    """Changes for a phase before the run stops: ``effort=high`` and ``model=claude-opus-5-5`` where its sessions do not
    finish it, ``fallback=claude-sonnet-5-5`` where its model is overloaded, out of quota or out of reach. Each counts
    once, in order, until the phase is done; its commit names them."""
    runner: _Runner = OWN_LOOP
    """The runner of the sessions: ``api`` is relay's own loop on the Messages API, other names are agents (`relay
    doctor --agent`). A phase may name its own runner: ``Runner: claude``."""
    provider: Annotated[str, choice(*PROVIDERS)] = PROVIDERS[0]
    """Who serves Claude, to relay's own loop and to agents that speak the Messages API: ``anthropic`` (or the address
    in ``ANTHROPIC_BASE_URL``), Amazon ``bedrock``, Google's ``vertex``, Microsoft ``foundry``, or Claude on ``aws``.
    `relay help endpoints` has the variables of each. Yours alone."""
    key_command: Annotated[tuple[Text, ...], told("a list of words: a program and its arguments")] = ()
    """A program with its arguments that prints the key for the Messages API: ``["op", "read", "op://work/claude/key"]``.
    relay runs it without a shell if no variable holds a key, asks it again once after the endpoint has refused a key,
    and stores the key nowhere, and shows it no agent. Yours alone."""
    agents: Agents = field(default_factory=dict)
    """Your own agents, and changes to those that relay knows: program, variables, files, login. Yours alone;
    `relay help agents` has examples."""
    mcp_servers: Servers = field(default_factory=dict)
    """Tool servers (Model Context Protocol) for phases that name them (``Tools: postgres``): a program in the sandbox,
    or an address. Yours alone."""
    reset_at: ResetAt = ResetAt(DEFAULT_RESET_AT)
    """The reset line: the context size at which a session hands over to a fresh one. A share of the model's window, a
    number of tokens, or the lower of both."""
    models: Annotated[Mapping[str, ModelSettings], told("a table of tables, one for each model")] = field(
        default_factory=dict
    )
    """Facts about models that their endpoints do not tell, or tell wrongly; a price is yours alone. relay merges the
    tables of all sources, and the stronger source wins."""
    max_cost_usd: _Usd | None = 20.0
    """Cap on the cost of a plan in USD; with 0 relay sends nothing, ``none`` lifts the cap."""
    max_phase_cost_usd: _Usd | None = None
    """Cap on the cost of a phase in USD."""
    max_tokens_total: Annotated[int, Meta(ge=0, le=10**12)] | None = None
    """Cap on a plan in tokens of all kinds; it also works for a model whose price is unknown."""
    max_sessions: Annotated[int, Meta(ge=1, le=1_000)] = 6
    """Sessions of one phase before relay stops and suggests a split."""
    max_repairs: Annotated[int, Meta(ge=0, le=100)] = 3
    """Attempts to repair a red gate."""
    review: Annotated[str, choice("off", "phase", "plan")] = "off"
    """Whether fresh sessions review work before its commit: of each ``phase``, or of the whole ``plan`` before its last
    commit."""
    max_wait_s: Annotated[float, Meta(ge=0, le=7 * _DAY_S)] = 1_800
    """Seconds; the longest wait for a provider's limit."""
    history: bool = True
    """Whether `.relay/history/` keeps the requests and answers of each session for 30 days, without secrets. A
    repository may only switch it off."""
    verify: _Commands = ()
    """Commands that every phase must pass, besides its own ``Verify:`` line."""
    setup: _Commands = ()
    """Commands with network access that install dependencies, before the first session and after a lock file changed,
    in the tree of the sessions and in that of the gates.
    relay runs a repository's commands only after you have approved them."""
    jobs: Annotated[int, Meta(ge=1, le=MOST_JOBS)] = 1
    """Number of phases that run side by side, each in a work tree of its own beside the repository; `relay check`
    shows which phases can."""
    pr: bool = False
    """Whether `relay run` pushes the branch, forward only, after each phase's commit and keeps the branch's draft
    request up to date, by your own `gh` or `glab`. Yours alone."""
    copy: Annotated[tuple[_Inside, ...], told("a list of paths relative to the repository, without .. and .git")] = ()
    """Ignored files and folders that relay copies into each work tree of its own besides what it copies anyway: secrets
    that a check needs, and whatever `relay lab compare` needs in its clones."""
    command_timeout_s: _Seconds = 120
    """Seconds for one command of the model, and for an agent to end its step after you asked the run to stop."""
    gate_timeout_s: _Seconds = 1_200
    """Seconds for one verify command."""
    sandbox: Annotated[str, choice("auto", "container", "off")] = "auto"
    """``auto``: bubblewrap confines commands. ``container``: only the container around relay confines them; allowed
    inside a container only. ``off``: commands may do whatever you may do. Each commit records the mode. Yours alone."""
    hooks: tuple[str, ...] = COMMIT_HOOKS
    """Which of your commit hooks relay runs: a list of names, ``run`` for all, ``skip`` for none."""
    commit_subject: Annotated[str, matching("one line with {subject} once in it", _SUBJECT)] = "relay: {subject}"
    """Form of the commit subjects that relay writes itself, and of a session's subject that a commit-msg hook
    refuses."""
    signoff: bool = False
    """Whether each commit ends with your line ``Signed-off-by:``, as `git commit -s` adds it. Yours alone."""
    network: Network = CLOSED
    """What commands reach: nothing; with ``true`` this machine's whole network, its own services included; with
    ``{ hosts = ["registry.npmjs.org"] }`` these hosts, by HTTPS; with ``localhost = [5432]`` in it a port of this
    machine; with ``sockets = ["docker"]`` a Unix socket. ``false`` closes all; else each key counts as its strongest
    source has it. Yours alone."""
    paths: Paths = NO_PATHS
    """Paths that commands may ``write`` or ``read`` although they are outside of the repository or hidden (a
    neighbouring package, test data, an environment that no plan names), absolute or from ``~/`` on; and paths to
    ``hide`` from commands and file tools, in addition to relay's own list. relay adds up the lists of all sources; a
    repository can only hide."""
    env_file: _Inside | None = None
    """A hidden file of the repository, such as ``.env.test``, that gates may read and sessions may not. relay removes
    its values from the output of gates. It also removes values that are secrets by their name or login from all text
    for a model, in JSON, addresses, HTML, base64 and hex too. A test that a session wrote can still print them in
    another form: put test credentials there, not your own."""
    env: Annotated[tuple[Variable, ...], told("a list of variable names")] = ()
    """Names of environment variables that commands may see, in addition to relay's own list."""
    notify: Channels = ()
    """Whom a run notifies when it is done or needs you: any service that Apprise knows (ntfy, Slack, Discord, mail …),
    the desktop, or a program. Yours alone. Messages say nothing about the repository unless ``details`` is true.
    `relay help news` has examples."""
    rules_fallback_names: _FileNames = ("CLAUDE.md", "GEMINI.md")
    """Rules files to read in a folder without AGENTS.md; the first existing one counts. With an empty list relay reads
    AGENTS.md only. A repository may name text files (``.md``, ``.mdc``, ``.txt``, ``.rst``) and ``.cursorrules``."""
    context: str = CONTEXTS[0]
    """Strategy for a full context, one of `CONTEXTS`; as `ablate`, part of an arm of an experiment, and no setting."""
    ablate: tuple[str, ...] = ()
    """Some of `FEATURES`, which are switched off in this run."""
    of_repository: frozenset[str] = frozenset()
    """Keys whose value comes from a repository file."""
    origins: Mapping[str, str] = field(default_factory=dict)
    """The source of each value: ``--model``, ``RELAY_MODEL``, ``relay.toml:3``, ``default``."""

    @property
    def prices(self) -> tuple[Price, ...]:
        """The user's own prices of models."""
        return tuple(row.price.make_price(model) for model, row in self.models.items() if row.price is not None)

    def find_model(self, model: str) -> ModelSettings:
        """Return a model's settings, by its id as written or its bare form; all None if there are none."""
        return self.models.get(model) or self.models.get(normalize_model(model)) or NOTHING_SET

    @property
    def other_models(self) -> tuple[str, ...]:
        """The models that `escalate` names."""
        changes = (change.partition("=") for change in self.escalate)
        return tuple(model for kind, _, model in changes if kind != "effort")

    def runner_for(self, wish: str) -> str:
        """Return the runner of a phase: the typed one, else the phase's wish (may be empty), else the setting."""
        return self.runner if self._is_typed("runner") or not wish else wish

    def model_for(self, wish: str) -> str:
        """Return the model of a phase, in the same way."""
        return self.model if self._is_typed("model") or not wish else wish

    def effort_for(self, wish: str) -> str | None:
        """Return the effort of a phase's model, in the same way; None for the model's own."""
        return self.effort if self._is_typed("effort") or not wish else wish

    def _is_typed(self, key: str) -> bool:
        return self.origins.get(key, "default").startswith(("--", "RELAY_"))

    @property
    def strategy(self) -> str:
        """The strategy for a full context: `context`, or ``none`` if the reset is switched off."""
        return "none" if "reset" in self.ablate else self.context

    def reset_at_for(self, model: str) -> ResetAt:
        """Return the reset line of a model: the typed one, else the model's own in ``models``, else the setting."""
        own = None if self._is_typed("reset_at") else self.find_model(model).reset_at
        return own or self.reset_at
