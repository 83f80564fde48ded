"""Any event that a run can have, for properties."""

import types
import typing
from dataclasses import fields

from hypothesis import strategies as st

from relay.session.usage import Usage
from relay.session.values import Shown

_ITEM = st.fixed_dictionaries({
    "id": st.text(), "text": st.text(), "state": st.sampled_from(("open", "claimed", "done")),
    "paths": st.lists(st.text(), max_size=2),
})  # fmt: skip
_PHASE = st.fixed_dictionaries({"id": st.text(), "title": st.text(), "items": st.lists(_ITEM, max_size=3)})
_PLAIN = {float: st.floats(0, 1e6).map(lambda number: round(number, 3)), int: st.integers(0, 10**9), str: st.text()}


def any_event(kind: type[typing.Any]) -> st.SearchStrategy[typing.Any]:
    """Return a strategy for one type of event, by the types of its fields."""
    return st.builds(kind, **{field.name: _any_value(field.type) for field in fields(kind)})


def _any_value(kind: typing.Any) -> st.SearchStrategy[typing.Any]:
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin in {typing.Union, types.UnionType}:
        return st.one_of(*(st.none() if arg is type(None) else _any_value(arg) for arg in args))
    if origin is tuple:
        return st.lists(_any_value(args[0]), max_size=3).map(tuple)
    if typing.get_origin(kind) is not None:
        return _PHASE  # the one mapping: a phase of `PlanShown`
    if kind in {Usage, Shown}:
        return any_event(kind)
    return _PLAIN[kind] if kind in _PLAIN else st.from_type(kind)
