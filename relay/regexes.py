"""Regular expressions that are compiled when they are first used.

A run that starts has two hundred of them and needs few at once: to compile all was a sixth of the time of its imports.
`re.compile` stays for those that a function makes.
"""

import re
from typing import Any, AnyStr, cast


def regex(pattern: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Return what does as `re.compile(pattern, flags)` would; a wrong pattern is found when it is first used.

    The functions of `re` do not take it for a pattern: call its own methods.
    """
    return cast("re.Pattern[AnyStr]", _Regex(pattern, flags))


class _Regex:
    def __init__(self, pattern: str | bytes, flags: int) -> None:
        self.pattern = pattern
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        found = getattr(re.compile(self.pattern, self._flags), name)
        setattr(self, name, found)  # the next look finds it without a call
        return found
