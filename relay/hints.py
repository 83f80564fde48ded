"""What the user is told to type next, so that it works where he is and on the plan that he named. Pure."""

import posixpath
import shlex
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Where a command was typed, and how it named its plan."""

    folder: str = "."
    """Relative to the repository's root; ``--plan`` is read relative to it."""
    plan: str = ""
    """The value of ``--plan`` as typed; empty when the settings named the plan."""

    def render(self, *words: str) -> str:
        """Write a command of relay's for the same plan, quoted for a shell; ``render("run", "--phase", "2")``."""
        named = ("--plan", self.plan) if self.plan else ()
        return shlex.join(("relay", *words[:1], *named, *words[1:]))

    def render_check(self) -> str:
        """Write ``relay check``, which takes the plan as its argument."""
        return shlex.join(("relay", "check", *((self.plan,) if self.plan else ())))

    def render_for(self, plan_path: str, *words: str) -> str:
        """Write a command for a plan, by its path relative to the root, whichever the settings name."""
        return Caller(plan=self.find_typed(plan_path)).render(*words)

    def find_typed(self, path: str) -> str:
        """Return how a path, relative to the root, is typed in the caller's folder."""
        return posixpath.relpath(path, self.folder)


AT_ROOT = Caller()
"""In the repository's root, with the plan that the settings name."""
