"""relay's value classes are the standard library's, in everything that a user of one can see."""

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Callable
from dataclasses import field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.base import values
from relay.base.values import dataclass

Decorate = Callable[..., Callable[[type], type]]


def make_classes(decorate: Decorate) -> tuple[type, type, type]:
    """Return a class with every kind of field, one that inherits from it, and one with methods of its own."""

    @decorate(frozen=True, slots=True, kw_only=True)
    class Base:
        """A value."""

        name: str
        size: int = 0
        parts: tuple[int, ...] = ()
        known: dict[str, int] = field(default_factory=dict, hash=False)
        loose: int = field(default=0, compare=False)
        quiet: int = field(default=0, repr=False)

        @property
        def whole(self) -> int:
            """Everything."""
            return self.size + sum(self.parts)

    @decorate(frozen=True, slots=True, kw_only=True)
    class Derived(Base):
        """One field more, and another default."""

        size: int = 7
        extra: str = ""

    @decorate(frozen=True, slots=True, kw_only=True)
    class Own:
        """Its author knows better."""

        text: str

        def __post_init__(self) -> None:
            if not self.text:
                raise ValueError("empty")

        def __eq__(self, other: object) -> bool:
            return isinstance(other, type(self)) and other.text.lower() == self.text.lower()

        def __hash__(self) -> int:
            return hash(self.text.lower())

        def __repr__(self) -> str:
            return f"<{self.text}>"

    return Base, Derived, Own


OURS, THEIRS = make_classes(dataclass), make_classes(dataclasses.dataclass)
GIVEN = st.fixed_dictionaries(
    {"name": st.text(max_size=3)},
    optional={
        "size": st.integers(0, 2),
        "parts": st.sampled_from([(), (1,), (1, 2)]),
        "known": st.sampled_from([{}, {"a": 1}]),
        "loose": st.integers(0, 1),
        "quiet": st.integers(0, 1),
    },
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Importable:
    """A value that pickle finds by its name."""

    text: str
    more: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Empty:
    """A value without a field."""


@pytest.mark.parametrize("at", [0, 1])
@given(one=GIVEN, other=GIVEN)
def test_a_value_compares_hashes_and_shows_itself_as_the_library_s(
    at: int, one: dict[str, Any], other: dict[str, Any]
) -> None:
    mine, theirs = OURS[at], THEIRS[at]
    assert (mine(**one) == mine(**other)) == (theirs(**one) == theirs(**other))
    assert (hash(mine(**one)) == hash(mine(**other))) == (hash(theirs(**one)) == hash(theirs(**other)))
    assert repr(mine(**one)) == repr(theirs(**one))
    assert dataclasses.asdict(mine(**one)) == dataclasses.asdict(theirs(**one))
    assert dataclasses.asdict(dataclasses.replace(mine(**one), **other)) == dataclasses.asdict(
        theirs(**{**one, **other})
    )
    assert mine(**one).whole == theirs(**one).whole
    assert copy.deepcopy(mine(**one)) == mine(**one)


@pytest.mark.parametrize("at", [0, 1, 2])
def test_the_classes_look_alike(at: int) -> None:
    mine, theirs = OURS[at], THEIRS[at]
    shape = [
        [(f.name, f.default, f.compare, f.hash, f.repr) for f in dataclasses.fields(cls)] for cls in (mine, theirs)
    ]
    assert shape[0] == shape[1]
    assert vars(mine)["__slots__"] == vars(theirs)["__slots__"]
    parameters = [list(inspect.signature(cls).parameters) for cls in (mine, theirs)]
    assert parameters[0] == parameters[1]


def test_values_of_two_classes_differ() -> None:
    assert OURS[0](name="a", size=7) != OURS[1](name="a")
    assert OURS[0](name="a") != "a"


@pytest.mark.parametrize("wrong", [{}, {"name": "a", "none": 1}])
def test_a_constructor_takes_its_fields_by_name_and_nothing_else(wrong: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        OURS[0](**wrong)
    with pytest.raises(TypeError):
        OURS[0]("a")


def test_a_value_cannot_be_changed() -> None:
    value = OURS[0](name="a")
    with pytest.raises(dataclasses.FrozenInstanceError):
        value.name = "b"
    with pytest.raises(dataclasses.FrozenInstanceError):
        del value.name
    with pytest.raises(dataclasses.FrozenInstanceError):
        value.unknown = 1
    assert value.name == "a"


def test_each_value_has_a_default_of_its_own() -> None:
    assert OURS[0](name="a").known is not OURS[0](name="a").known


def test_what_a_class_says_of_itself_holds() -> None:
    assert OURS[2](text="A") == OURS[2](text="a")
    assert hash(OURS[2](text="A")) == hash(OURS[2](text="a"))
    assert repr(OURS[2](text="A")) == "<A>"
    with pytest.raises(ValueError, match="empty"):
        OURS[2](text="")


def test_a_value_travels_through_pickle() -> None:
    value = Importable(text="a", more=(1,))
    assert pickle.loads(pickle.dumps(value)) == value
    assert Empty() == pickle.loads(pickle.dumps(Empty()))
    assert hash(Empty()) == hash(())


def make_changeable(decorate: Decorate) -> type:
    """Return a class that changes, whose fields may be given by their places."""

    @decorate(slots=True)
    class Counter:
        """Mutable: it counts."""

        n: int
        seen: list[int] = field(default_factory=list)
        step: int = 1
        own: str = field(init=False)

        def __post_init__(self) -> None:
            self.own = "mine"

    return Counter


@pytest.mark.parametrize("decorate", [dataclass, dataclasses.dataclass], ids=["ours", "library"])
def test_a_class_that_changes_is_made_as_the_library_s(decorate: Decorate) -> None:
    cls = make_changeable(decorate)
    counter = cls(1, [2])
    counter.n += 1
    assert counter == cls(n=2, seen=[2])
    assert counter != cls(n=2)
    assert repr(counter).endswith("Counter(n=2, seen=[2], step=1, own='mine')")
    assert list(inspect.signature(cls).parameters) == ["n", "seen", "step"]
    assert copy.deepcopy(counter) == counter
    with pytest.raises(TypeError):
        hash(counter)
    assert not hasattr(counter, "__dict__")


def test_a_value_class_has_slots() -> None:
    with pytest.raises(TypeError, match="slots"):
        dataclass(frozen=True, kw_only=True)
    assert values.dataclass is not dataclasses.dataclass
