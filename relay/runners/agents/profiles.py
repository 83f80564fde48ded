"""Profiles: how relay starts each agent that it knows, and speaks with it. Nothing here comes from a repository.

Every value was seen on the version that the profile names. relay fills in these fields of the texts: ``{base}`` the
gateway's address, ``{model}`` the model, ``{home}`` the private home directory, ``{server}`` the command of relay's
tool server as JSON, ``{tools}`` its socket, ``{window}`` and ``{output}`` the model's limits in tokens, the latter as
far as the caps leave it.
"""

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from relay.base.values import dataclass

NO_KEY = "held-by-relay"
"""Stands where an agent wants to have a key; the gateway puts in the real one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """How an agent is told of an endpoint of one family."""

    family: str
    """``anthropic``, ``openai`` or ``gemini``; `relay.runners.messages.endpoint` says what each is."""
    arguments: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    files: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentEngine:
    """The program that does the work of an agent whose own one only speaks the protocol for it."""

    program: str
    """What a person starts, and logs in with."""
    package: str
    """Of npm: the one that is run."""
    field: str = "version"
    """Of its package.json."""
    tested: str
    variable: str = ""
    """Names another program in its place; empty where it is the one on PATH."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One agent."""

    name: str
    """For ``--runner``."""
    title: str
    package: str
    """What a user types to install the tested version; empty where nobody knows."""
    program: str
    """Found on PATH."""
    arguments: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    """Other programs that it starts, by their names."""
    tested: str
    """The version that the agent told of itself when this profile was tried."""
    engine: AgentEngine | None = None
    """None where the agent does the work itself."""
    own_tokens: int = 0
    """What its first request has besides relay's words, about."""
    env: tuple[tuple[str, str], ...] = ()
    files: tuple[tuple[str, str], ...] = ()
    """Path below the home directory, and text."""
    ways: tuple[Way, ...] = (Way(family="anthropic"),)
    """Arguments, variables and files on top of these for each kind of endpoint that it speaks to."""
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """For session/new."""
    mode: str = ""
    """Of the session; empty for the one that it starts with."""
    login: str = "key"
    """How it asks its model: see `relay.config.agents.LOGINS`."""
    credentials: tuple[str, ...] = ()
    """What holds a login: names of variables, and files below the user's home directory."""
    hosts: tuple[str, ...] = ()
    """Of the vendor, which a login is for."""
    takes_server: bool = True
    """session/new gives it relay's tools; else its own files or arguments do."""
    names_sessions: bool = False
    """It asks another model for a title unless there is one."""

    @property
    def tunnelled(self) -> bool:
        """Whether it asks its vendor itself."""
        return self.login == "tunnel"

    @property
    def usage(self) -> str:
        """``exact`` where relay's gateway counts it, ``~`` where the agent tells it."""
        return "~" if self.tunnelled else "exact"

    @property
    def way(self) -> str:
        """How a user gets it."""
        unknown = f"put {self.program} on PATH, or name another program: agents.{self.name}.program"
        return f"{self.package} installs it" if self.package else unknown

    @property
    def tools(self) -> str:
        """How relay's own tools reach it."""
        texts = (*self.arguments, *(text for _, text in self.files))
        return "MCP" if self.takes_server or any("{server}" in text for text in texts) else "extension"

    @property
    def is_lent(self) -> bool:
        """Whether it has the user's login, not a key that relay holds."""
        return self.login != "key"


CLAUDE = Profile(
    name="claude",
    title="Claude Code",
    package="npm install -g @agentclientprotocol/claude-agent-acp@0.100.0",
    program="claude-agent-acp",
    needs=("node",),
    tested="0.100.0",
    engine=AgentEngine(
        program="claude",
        package="@anthropic-ai/claude-agent-sdk",
        field="claudeCodeVersion",
        tested="2.1.316",
        variable="CLAUDE_CODE_EXECUTABLE",
    ),
    own_tokens=6_000,
    env=(
        ("IS_SANDBOX", "1"),  # else it refuses to run unasked as root
        ("ANTHROPIC_BASE_URL", "{base}"),
        ("ANTHROPIC_API_KEY", NO_KEY),
        ("ANTHROPIC_MODEL", "{model}"),
        ("ENABLE_TOOL_SEARCH", "false"),
        ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
        ("DISABLE_AUTOUPDATER", "1"),
        ("DISABLE_AUTO_COMPACT", "1"),
        ("CLAUDE_CODE_MAX_OUTPUT_TOKENS", "{output}"),
    ),
    options={
        "_meta": {
            "claudeCode": {
                "options": {"tools": ["Bash", "Read", "Edit", "Write", "Grep", "Glob"], "promptSuggestions": False}
            }
        }
    },
    mode="bypassPermissions",
    credentials=("CLAUDE_CODE_OAUTH_TOKEN", ".claude/.credentials.json"),
    hosts=("api.anthropic.com", "platform.claude.com"),
)

_OPENCODE_JSON = """\
{"model": "anthropic/{model}", "small_model": "anthropic/{model}", "enabled_providers": ["anthropic"],
 "provider": {"anthropic": {"options": {"baseURL": "{base}/v1", "apiKey": "held-by-relay"},
  "models": {"{model}": {"limit": {"context": {window}, "output": {output}}}}}},
 "permission": {"edit": "allow", "bash": "allow"}, "snapshot": false, "autoupdate": false, "share": "disabled",
 "compaction": {"auto": false}, "agent": {"title": {"disable": true}}}
"""

OPENCODE = Profile(
    name="opencode",
    title="OpenCode",
    package="npm install -g opencode-ai@1.18.33",
    program="opencode",
    arguments=("acp",),
    tested="1.18.33",
    own_tokens=9_500,
    env=(
        ("OPENCODE_DISABLE_AUTOUPDATE", "1"),
        ("OPENCODE_DISABLE_MODELS_FETCH", "1"),
        ("OPENCODE_DISABLE_LSP_DOWNLOAD", "1"),
        ("NO_PROXY", "127.0.0.1,localhost"),  # it speaks HTTP to itself
    ),
    files=((".config/opencode/opencode.json", _OPENCODE_JSON),),
)

_CODEX_TOML = """\
model = "{model}"
check_for_update_on_startup = false
model_auto_compact_token_limit = 1000000000
web_search = "disabled"
[analytics]
enabled = false
[features]
multi_agent = false
goals = false
apps = false
plugins = false
"""
_CODEX_PROVIDER = """\
[model_providers.relay]
name = "relay"
base_url = "{base}/v1"
env_key = "OPENAI_API_KEY"
wire_api = "responses"
"""

CODEX = Profile(
    name="codex",
    title="Codex",
    package="npm install -g @agentclientprotocol/codex-acp@2.6.0",
    program="codex-acp",
    needs=("node",),
    tested="2.6.0",
    engine=AgentEngine(program="codex", package="@openai/codex", tested="0.166.0", variable="CODEX_PATH"),
    own_tokens=9_000,
    env=(("INITIAL_AGENT_MODE", "agent-full-access"), ("NO_BROWSER", "1")),
    files=((".codex/config.toml", _CODEX_TOML),),
    names_sessions=True,
    ways=(
        Way(
            family="openai",
            env=(("OPENAI_API_KEY", NO_KEY), ("MODEL_PROVIDER", "relay")),
            files=((".codex/config.toml", f'model_provider = "relay"\n{_CODEX_TOML}{_CODEX_PROVIDER}'),),
        ),
    ),
    credentials=(".codex/auth.json",),
    hosts=("chatgpt.com", "auth.openai.com"),
)

_PI_EXTENSION = """\
// relay's own tools: MCP over a Unix socket, one message in a line.
import net from "node:net";
import { createInterface } from "node:readline";
export default async function (pi) {
  const socket = net.connect("{tools}");
  const waiting = new Map();
  let last = 0;
  createInterface({ input: socket }).on("line", (line) => {
    const said = JSON.parse(line);
    waiting.get(said.id)?.(said.result);
    waiting.delete(said.id);
  });
  const ask = (method, params) => new Promise((resolve) => {
    waiting.set(++last, resolve);
    socket.write(JSON.stringify({ jsonrpc: "2.0", id: last, method, params }) + "\\n");
  });
  const { tools } = await ask("tools/list", {});
  for (const tool of tools) {
    pi.registerTool({
      name: tool.name, label: tool.name, description: tool.description, parameters: tool.inputSchema,
      execute: async (_id, given) => {
        const { content, isError } = await ask("tools/call", { name: tool.name, arguments: given });
        if (isError) throw new Error(content[0].text);
        return { content, details: {} };
      },
    });
  }
}
"""


def _render_pi(api: str, base: str) -> tuple[tuple[str, str], ...]:
    """Return the files of pi for one kind of endpoint."""
    model = '{"id": "{model}", "contextWindow": {window}, "maxTokens": {output}}'
    given = f'"baseUrl": "{base}", "api": "{api}", "apiKey": "{NO_KEY}", "models": [{model}]'
    settings = '{"defaultProvider": "relay", "defaultModel": "{model}", "compaction": {"enabled": false}}'
    return (
        (".pi/agent/models.json", f'{{"providers": {{"relay": {{{given}}}}}}}'),
        (".pi/agent/settings.json", settings),
    )


PI = Profile(
    name="pi",
    title="pi",
    package="npm install -g pi-acp@0.0.34 @earendil-works/pi-coding-agent@0.87.1",
    program="pi-acp",
    needs=("pi", "node"),
    tested="0.0.34",
    engine=AgentEngine(program="pi", package="@earendil-works/pi-coding-agent", tested="0.87.1"),
    own_tokens=1_000,
    env=(("PI_OFFLINE", "1"), ("PI_TELEMETRY", "0")),
    files=((".pi/agent/extensions/relay.js", _PI_EXTENSION),),
    ways=(
        Way(family="anthropic", files=_render_pi("anthropic-messages", "{base}")),
        Way(family="openai", files=_render_pi("openai-responses", "{base}/v1")),
        Way(family="gemini", files=_render_pi("google-generative-ai", "{base}/v1beta")),
    ),
    takes_server=False,
)

_QWEN_JSON = """\
{"security": {"auth": {"selectedType": "openai"}}, "tools": {"toolSearch": {"enabled": false}},
 "memory": {"enableManagedAutoMemory": false, "enableManagedAutoDream": false, "enableAutoSkill": false},
 "ui": {"enableFollowupSuggestions": false}, "general": {"enableAutoUpdate": false}}
"""

QWEN = Profile(
    name="qwen",
    title="Qwen Code",
    package="npm install -g @qwen-code/qwen-code@0.24.4",
    program="qwen",
    arguments=("--acp", "--yolo"),
    needs=("node",),
    tested="0.24.4",
    own_tokens=33_000,
    env=(("QWEN_CODE_MAX_OUTPUT_TOKENS", "{output}"),),
    ways=(
        Way(
            family="openai",
            env=(("OPENAI_BASE_URL", "{base}/v1"), ("OPENAI_API_KEY", NO_KEY), ("OPENAI_MODEL", "{model}")),
            files=((".qwen/settings.json", _QWEN_JSON),),
        ),
    ),
)

_KIMI_TOML = """\
default_permission_mode = "auto"
telemetry = false
default_model = "relay"
[providers.relay]
type = "FAMILY"
base_url = "PLACE"
api_key = "held-by-relay"
[models.relay]
provider = "relay"
model = "{model}"
max_context_size = {window}
max_output_size = {output}
"""

KIMI = Profile(
    name="kimi",
    title="Kimi Code",
    package="npm install -g @moonshot-ai/kimi-code@2.1.0",
    program="kimi",
    arguments=("acp",),
    needs=("node",),
    tested="2.1.0",
    own_tokens=27_000,
    ways=tuple(
        Way(
            family=family,
            files=((".kimi-code/config.toml", _KIMI_TOML.replace("FAMILY", family).replace("PLACE", place)),),
        )
        for family, place in (("openai", "{base}/v1"), ("anthropic", "{base}"))
    ),
)

_GEMINI_JSON = """\
{"security": {"auth": {"selectedType": "gemini-api-key"}}, "privacy": {"usageStatisticsEnabled": false},
 "general": {"enableAutoUpdate": false}, "modelConfigs": {"customOverrides": [
  {"match": {"model": "{model}"}, "modelConfig": {"generateContentConfig": {"maxOutputTokens": {output}}}}]}}
"""

GEMINI = Profile(
    name="gemini",
    title="Gemini CLI",
    package="npm install -g @google/gemini-cli@0.61.0",
    program="gemini",
    arguments=("--acp", "--yolo"),
    needs=("node",),
    tested="0.61.0",
    own_tokens=14_500,
    env=(
        ("GEMINI_API_KEY", NO_KEY),
        ("GOOGLE_GEMINI_BASE_URL", "{base}"),
        ("GEMINI_MODEL", "{model}"),
        ("GEMINI_CLI_TRUST_WORKSPACE", "true"),
    ),
    files=((".gemini/settings.json", _GEMINI_JSON),),
    ways=(Way(family="gemini"),),
)

COPILOT = Profile(
    name="copilot",
    title="Copilot CLI",
    package="npm install -g @github/copilot@1.0.102",
    program="copilot",
    arguments=(
        "--acp",
        "--allow-all-tools",
        "--no-auto-update",
        "--additional-mcp-config",
        '{"mcpServers": {"relay": {server}}}',
    ),
    needs=("node",),
    tested="1.0.102",
    own_tokens=14_000,
    env=(
        ("COPILOT_MODEL", "{model}"),
        ("COPILOT_OFFLINE", "true"),
        ("COPILOT_PROVIDER_API_KEY", NO_KEY),
        ("COPILOT_PROVIDER_MAX_PROMPT_TOKENS", "{window}"),
        ("COPILOT_PROVIDER_MAX_OUTPUT_TOKENS", "{output}"),
    ),
    ways=(
        Way(family="anthropic", env=(("COPILOT_PROVIDER_TYPE", "anthropic"), ("COPILOT_PROVIDER_BASE_URL", "{base}"))),
        Way(
            family="openai",
            env=(("COPILOT_PROVIDER_WIRE_API", "responses"), ("COPILOT_PROVIDER_BASE_URL", "{base}/v1")),
        ),
    ),
    takes_server=False,
)

GOOSE = Profile(
    name="goose",
    title="goose",
    package="curl -fsSL https://github.com/aaif-goose/goose/releases/download/stable/download_cli.sh "
    "| GOOSE_VERSION=v1.52.0 bash",
    program="goose",
    arguments=("acp", "--with-builtin", "developer"),
    tested="1.52.0",
    own_tokens=5_500,
    env=(
        ("GOOSE_MODEL", "{model}"),
        ("GOOSE_CONTEXT_LIMIT", "{window}"),
        ("GOOSE_MAX_TOKENS", "{output}"),
        ("GOOSE_MODE", "auto"),
        ("GOOSE_DISABLE_KEYRING", "1"),
        ("GOOSE_DISABLE_SESSION_NAMING", "true"),
        ("GOOSE_AUTO_COMPACT_THRESHOLD", "0"),
        ("GOOSE_TELEMETRY_ENABLED", "false"),
    ),
    ways=(
        Way(
            family="anthropic",
            env=(("GOOSE_PROVIDER", "anthropic"), ("ANTHROPIC_HOST", "{base}"), ("ANTHROPIC_API_KEY", NO_KEY)),
        ),
        Way(family="openai", env=(("GOOSE_PROVIDER", "openai"), ("OPENAI_HOST", "{base}"), ("OPENAI_API_KEY", NO_KEY))),
    ),
)

_CLINE = ".cline/data/settings/"
_CLINE_PROVIDERS = """\
{"version": 1, "lastUsedProvider": "PROVIDER", "modes": {}, "providers": {"PROVIDER": {"settings":
 {"provider": "PROVIDER", "apiKey": "held-by-relay", "model": "{model}", "baseUrl": "{base}/v1"},
 "updatedAt": "2026-01-01T00:00:00.000Z", "tokenSource": "manual"}}}
"""
_CLINE_MODELS = """\
{"version": 1, "providers": {"PROVIDER": {"models": {"{model}":
 {"contextWindow": {window}, "maxTokens": {output}, "capabilities": ["tools", "prompt-cache"]}}}}}
"""
_CLINE_SETTINGS = """\
{"telemetryOptOut": true, "autoUpdateEnabled": false, "compactionEnabled": false,
 "tools": {"web_search": {"enabled": false}}}
"""

CLINE = Profile(
    name="cline",
    title="Cline",
    package="npm install -g cline@3.0.65",
    program="cline",
    arguments=("--acp", "--auto-approve", "true"),
    needs=("node",),
    tested="3.0.65",
    own_tokens=3_500,
    env=(
        ("CLINE_API_KEY", NO_KEY),
        ("CLINE_MODEL", "{model}"),
        ("CLINE_SESSION_BACKEND_MODE", "local"),
        ("CLINE_NO_AUTO_UPDATE", "1"),
    ),
    files=(
        (f"{_CLINE}global-settings.json", _CLINE_SETTINGS),
        (f"{_CLINE}cline_mcp_settings.json", '{"mcpServers": {"relay": {server}}}'),
    ),
    ways=tuple(
        Way(
            family=family,
            env=(("CLINE_PROVIDER", provider),),
            files=(
                (f"{_CLINE}providers.json", _CLINE_PROVIDERS.replace("PROVIDER", provider)),
                (f"{_CLINE}models.json", _CLINE_MODELS.replace("PROVIDER", provider)),
            ),
        )
        for family, provider in (("anthropic", "anthropic"), ("openai", "openai-compatible"))
    ),
    takes_server=False,
)

PROFILES: Mapping[str, Profile] = {
    profile.name: profile for profile in (CLAUDE, OPENCODE, CODEX, PI, QWEN, KIMI, GEMINI, COPILOT, GOOSE, CLINE)
}
