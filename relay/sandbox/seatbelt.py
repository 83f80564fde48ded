"""macOS: `/usr/bin/sandbox-exec` with a generated profile, through the supervisor.

Everything is denied and then allowed by rule; the last matching rule wins. The program is called by its absolute
path. It has been deprecated for years and is what every command-line agent on macOS uses; there is no other.
"""

import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from relay.sandbox.confinement import Mountless, describe_closed, supervise
from relay.sandbox.environment import build_env, find_toolchain_env
from relay.sandbox.places import HOME_SECRETS, find_home_directory, find_real, find_toolchains, is_below
from relay.sandbox.policy import Level, Mechanism, Policy
from relay.sandbox.private_folder import PrivateDir
from relay.sandbox.scan import Found, scan_repository
from relay.sandbox.start import Launch
from relay.sandbox.toolchains import list_usable
from relay.sandbox.view import require_git_link
from relay.values import dataclass

SANDBOX_EXEC = Path("/usr/bin/sandbox-exec")

_BASE = """\
(version 1)
(deny default)
(allow process-exec process-fork process-info*)
(allow signal (target same-sandbox))
(allow sysctl-read)
(allow ipc-posix-sem ipc-posix-shm*)
(allow mach-lookup
  (global-name "com.apple.system.opendirectoryd.libinfo")
  (global-name "com.apple.system.opendirectoryd.membership")
  (global-name "com.apple.system.logger")
  (global-name "com.apple.system.notification_center")
  (global-name "com.apple.CoreServices.coreservicesd")
  (global-name "com.apple.SystemConfiguration.configd")
  (global-name "com.apple.trustd.agent"))
(allow file-read*)
(allow file-write-data file-ioctl
  (literal "/dev/null") (literal "/dev/zero")
  (literal "/dev/random") (literal "/dev/urandom") (literal "/dev/dtracehelper"))
"""

_HIDDEN = ("/Users", "/Volumes", "/private/tmp", "/private/var/tmp", "/private/var/folders", "/private/var/run")


@dataclass(frozen=True, slots=True, kw_only=True)
class Seatbelt(Mountless):
    """A profile per command, so that it names what exists now."""

    level: Level
    found: Found

    mechanism = Mechanism.SEATBELT

    @property
    def gaps(self) -> tuple[str, ...]:
        """What macOS does not have."""
        return (
            "macOS has no process namespace: a daemon that leaves its session can outlive its command",
            "macOS has no network namespace: without the network, servers on loopback do not work either",
            *describe_closed(self.policy),
        )

    def renew(self, private: PrivateDir) -> "Seatbelt":
        """Return the same with another private directory."""
        return replace(self, private=private)

    def reveal(self, place: Path) -> "Seatbelt":
        """Return the same with a file shown that is hidden for its name only."""
        secrets = tuple(secret for secret in self.found.secrets if secret != place)
        return replace(self, found=replace(self.found, secrets=secrets))

    def build_launch(self, command: tuple[str, ...], *, cwd: Path, extra_env: Mapping[str, str]) -> Launch:
        """Write the profile and return the launch.

        Raises:
            SandboxError: The git directory cannot be protected.
        """
        require_git_link(self.policy.root)
        profile = render_profile(self.policy, self.level, self.private.path, self.found)
        stores = list_usable(find_home_directory(self.policy.env), self.policy.env, writable=())
        env = build_env(self.policy, home=self.private.make_home(), tmp=self.tmp, stores=stores)
        env = {**find_toolchain_env(find_home_directory(self.policy.env)), **env, **extra_env}
        return supervise((str(SANDBOX_EXEC), "-p", profile, *command), cwd=cwd, env=env)


def render_profile(policy: Policy, level: Level, private: Path, found: Found) -> str:
    """Return the SBPL profile; rules are ordered so that each group may undo the one before."""
    home = find_home_directory(policy.env)
    root = policy.root
    prefixes = (sys.prefix, sys.base_prefix)
    shown = [place.resolve() for place in (*policy.readable, *find_toolchains(home, policy.env, prefixes))]
    hidden = [*map(Path, _HIDDEN), *policy.apart, *([home] if home else [])]
    shown = [place for place in shown if is_below(place, hidden) and not is_below(root, [place])]
    own_secrets = (home / name for name in HOME_SECRETS) if home else ()
    secrets = [*found.secrets, *map(find_real, policy.unreadable), *own_secrets]
    guarded = [
        root / ".git",
        *policy.git_dirs,
        *policy.protected,
        *found.protected,
        *found.links.trees,
        *found.links.files,
    ]
    own = [private / "tmp", private / "home"]
    rules = [
        _rule("deny", "file-read*", hidden),
        # Path resolution needs the metadata of every ancestor.
        _rule("allow", "file-read-metadata", hidden, kind="literal"),
        _rule("allow", "file-read-metadata", _find_ancestors([root, private, *shown]), kind="literal"),
        _rule("allow", "file-read*", [root, *policy.git_dirs, *own, *shown]),
        _rule("allow", "file-write*", own),
    ]
    if level is Level.WORKSPACE_WRITE:
        rules += [
            _rule("allow", "file-read* file-write*", [root, *policy.writable]),
            _rule("deny", "file-write*", guarded),
            # A protected path must not be renamed away together with a directory above it.
            _rule("deny", "file-write-unlink", _find_ancestors([*guarded, *secrets], below=root), kind="literal"),
        ]
    rules += [
        _rule("deny", "file-read* file-write*", secrets),
        "(deny file-write-setugid)",
    ]
    if policy.network:
        rules.append("(allow network-outbound (remote ip))\n(allow network-inbound (local ip))\n(allow system-socket)")
    rules.append(_rule("allow", "network*", own))
    return _BASE + "\n".join(rule for rule in rules if rule) + "\n"


def _rule(verb: str, operation: str, places: Iterable[Path], *, kind: str = "subpath") -> str:
    names = sorted({f"({kind} {_quote(place)})" for place in places})
    return f"({verb} {operation}\n  " + "\n  ".join(names) + ")" if names else ""


def _quote(place: Path) -> str:
    """Quote a path; a quote or a backslash in a directory name must not end the string."""
    escaped = str(place).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _find_ancestors(places: Iterable[Path], below: Path | None = None) -> set[Path]:
    return {
        parent
        for place in places
        for parent in place.parents
        if below is None or (parent != below and parent.is_relative_to(below))
    }


def open_seatbelt(policy: Policy, level: Level, private: PrivateDir) -> Seatbelt | None:
    """Return the confinement, or None away from macOS."""
    if os.uname().sysname != "Darwin" or not SANDBOX_EXEC.exists():
        return None
    return Seatbelt(policy=policy, level=level, private=private, found=scan_repository(policy, level))
