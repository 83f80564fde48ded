"""What a command printed, as text that is safe to show and to store."""

import re

_ESCAPES = re.compile(
    r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?"  # OSC: titles, links, clipboard
    r"|\x1b[PX^_][^\x1b]*(?:\x1b\\)?"  # DCS, SOS, PM, APC
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"  # CSI: colours, cursor
    r"|\x1b[ -/]*[0-~]?"
)
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def render_output(data: bytes) -> str:
    """Decode UTF-8 (other bytes become U+FFFD), without escape sequences and control characters.

    Of a line that was overwritten with carriage returns (progress bars) only the last state is kept. Tabs and line
    feeds stay.
    """
    text = _ESCAPES.sub("", data.decode("utf-8", "replace")).replace("\r\n", "\n")
    if "\r" in text:
        text = "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
    return _CONTROLS.sub("", text)
