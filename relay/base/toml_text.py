"""Read TOML from untrusted sources within a bound: the library's parser is quadratic in the parts of a dotted key."""

import re
from typing import Any

MOST_PARTS = 100
_PART = r"""(?:[\w-]++|"(?:[^"\\\n]|\\.)*+"|'[^'\n]*+')"""
_DEEP_KEY = re.compile(rf"(?<![\w-]){_PART}(?:[ \t]*+\.[ \t]*+{_PART}){{{MOST_PARTS}}}")
_AT_LINE = re.compile(r" \(at line (\d+), column \d+\)$")


class TomlError(ValueError):
    """The text cannot be read.

    Args:
        words: Why.
        line: 1-based; 0 when it is not known.
    """

    def __init__(self, words: str, line: int = 0) -> None:
        super().__init__(words)
        self.line = line


def parse_toml(text: str) -> dict[str, Any]:
    """Parse a text.

    Raises:
        TomlError: It is no TOML, or is nested too deeply.
    """
    import tomllib

    if deep := _DEEP_KEY.search(text):
        raise TomlError(
            f"nested too deeply: a key of more than {MOST_PARTS} parts", text.count("\n", 0, deep.start()) + 1
        )
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as exc:
        at = _AT_LINE.search(str(exc))  # Python 3.14 has it as a field of the error
        raise TomlError(str(exc)[: at.start()] if at else str(exc), int(at[1]) if at else 0) from None
    except RecursionError:
        raise TomlError("nested too deeply") from None
    except ValueError:  # from converting a number, not from the parser
        raise TomlError("a number of thousands of digits") from None
