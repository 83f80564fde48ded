"""What the plotting library drew, made fit for the page: known shapes only, in the colours of the page."""

import re
from collections.abc import Iterator
from xml.etree import ElementTree as ET

from markupsafe import Markup

from relay.insight.report.blocks import find_ink

_SHAPES = frozenset({"g", "path", "line", "rect", "circle", "text", "tspan", "defs", "clipPath"})
_DRAWN = frozenset({"path", "line", "circle"})
_KEPT = frozenset({
    "x", "y", "x1", "x2", "y1", "y2", "dx", "dy", "cx", "cy", "r", "d", "width", "height", "transform", "text-anchor",
    "stroke-width", "stroke-dasharray", "stroke-opacity", "fill-opacity",
})  # fmt: skip
_DEFAULT_ONE = frozenset({"stroke-width", "stroke-opacity", "fill-opacity"})
_NUMBER = re.compile(r"-?\d+\.\d+(?:E-?\d+)?")
_LOCAL = re.compile(r"\{[^}]*\}")


def fit_svg(drawn: str, *, name: str, label: str) -> Markup:
    """Return what was drawn as an element for the page.

    Made anew from what is known to be harmless: no script, no style, no link, no reference but to its own ids.

    Args:
        name: Unique on the page; the beginning of its ids.
        label: What it shows, for who cannot see it.

    Raises:
        ValueError: It is not a drawing, as when the library wrote an error into it.
    """
    try:
        found = ET.fromstring(drawn)  # noqa: S314  # made in this process, and expat has its own limit on entities
    except ET.ParseError as error:
        raise ValueError(f"the drawing {name!r} is no XML: {error}") from error
    try:
        size = f"0 0 {float(found.get('width', '')):g} {float(found.get('height', '')):g}"
    except ValueError:
        raise ValueError(f"{name!r} was not drawn: {' '.join(''.join(found.itertext()).split())}") from None
    ids = {element.get("id", ""): f"{name}-{n}" for n, element in enumerate(found.iter("*"))}
    kept = ET.Element("svg", {"viewBox": size, "role": "img", "aria-label": label})
    kept.extend(_keep(found, ids))
    return Markup(ET.tostring(kept, encoding="unicode"))  # noqa: S704  # of shapes and attributes that are listed here


def _keep(parent: ET.Element, ids: dict[str, str]) -> Iterator[ET.Element]:
    for child in parent:
        shape = _LOCAL.sub("", child.tag)
        if shape not in _SHAPES or (shape in _DRAWN and _is_invisible(child)):
            continue
        kept = ET.Element(shape, dict(_keep_attributes(child, ids)))
        kept.text = (child.text or "").strip()
        kept.extend(_keep(child, ids))
        if shape != "g" or len(kept):
            yield kept


def _is_invisible(element: ET.Element) -> bool:
    """Return whether it draws nothing: frames that only catch the mouse."""
    without_fill = element.get("fill", "none") == "none" or element.get("fill-opacity") == "0.0"
    return without_fill and not _has_line(element)


def _has_line(element: ET.Element) -> bool:
    return element.get("stroke", "none") != "none" and element.get("stroke-width") != "0.0"


def _keep_attributes(element: ET.Element, ids: dict[str, str]) -> Iterator[tuple[str, str]]:
    unseen = () if _has_line(element) else ("stroke", "stroke-width", "stroke-opacity")
    for name, value in element.attrib.items():
        if name in unseen or (name in _DEFAULT_ONE and value == "1.0"):
            continue
        if name in _KEPT:
            yield name, _NUMBER.sub(_round, value)
        elif name in {"fill", "stroke"}:
            ink = find_ink(value)
            yield name, f"var(--{ink})" if ink else "none" if value == "none" else "currentColor"
        elif name == "id":
            yield name, ids[value]
        elif name == "clip-path" and (target := ids.get(value.removeprefix("url(#").removesuffix(")"))):
            yield name, f"url(#{target})"


def _round(number: re.Match[str]) -> str:
    return f"{round(float(number[0]), 1):g}"
