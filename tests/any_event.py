"""Any event that a run can have, for properties."""

import types
import typing
from dataclasses import fields

from hypothesis import strategies as st

from relay.session.usage import Usage
from relay.session.values import MOST_NUMBER, Shown

_COUNTS = st.integers(0, 10**9) | st.just(MOST_NUMBER)
_PLAIN = {
    float: st.floats(0, 1e6).map(lambda n: round(n, 3))
    | st.sampled_from((-1.5, float(-MOST_NUMBER), float(MOST_NUMBER))),
    int: _COUNTS | st.sampled_from((-1, -MOST_NUMBER)),
    str: st.text(),
}


def any_event(kind: type[typing.Any]) -> st.SearchStrategy[typing.Any]:
    """Return a strategy for one type of event, by the types of its fields."""
    return st.builds(kind, **{field.name: _any_value(field.type) for field in fields(kind)})


def _any_value(kind: typing.Any) -> st.SearchStrategy[typing.Any]:
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin in {typing.Union, types.UnionType}:
        return st.one_of(*(st.none() if arg is type(None) else _any_value(arg) for arg in args))
    if origin is typing.Annotated:
        return _any_value(args[0])
    if origin in {tuple, list}:
        return st.lists(_any_value(args[0]), max_size=3).map(origin)
    if origin is typing.Literal:
        return st.sampled_from(args)
    if typing.is_typeddict(kind):
        hints = {name: _any_value(hint) for name, hint in typing.get_type_hints(kind).items()}
        late = kind.__optional_keys__
        needed = {name: value for name, value in hints.items() if name not in late}
        return st.fixed_dictionaries(needed, optional={name: hints[name] for name in late})
    if kind is Usage:
        return st.builds(kind, **{field.name: _COUNTS for field in fields(kind)})
    if kind is Shown:
        return any_event(kind)
    return _PLAIN[kind] if kind in _PLAIN else st.from_type(kind)
