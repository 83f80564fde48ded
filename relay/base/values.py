"""Value classes: the standard library's slotted dataclasses, made in a tenth of the time.

A relay that starts makes two hundred and fifty of them, and the library compiles six methods for each: a fifth of the
time of `relay status` (`benchmarks/startup.py`). Here the library still reads the fields and makes the slots, only the
constructor is compiled, when it is first called, and the other methods are shared. `fields`, `replace`, `asdict` and
type checkers see a dataclass. attrs takes longer to make one; msgspec is faster still, and has no fields that are left
out of a comparison.
"""

import dataclasses
from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

ClassT = TypeVar("ClassT")

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass  # noqa: PLC0414  # a re-export, so that checkers know what it is
else:

    def dataclass(
        *, frozen: bool = False, slots: bool = False, kw_only: bool = False
    ) -> Callable[[type[ClassT]], type[ClassT]]:
        """Do what `dataclasses.dataclass` does with slots; without them it is not ours."""
        if not slots:
            raise TypeError("a value class has slots")
        return partial(_make_value_class, frozen=frozen, kw_only=kw_only)


class _Constructor:
    """Stands for the constructor of a class until it is first asked for, and puts the compiled one in its place."""

    def __init__(self, made: type) -> None:
        self.made = made

    def __get__(self, value: object, owner: type) -> object:
        init = _compile_init(self.made)
        self.made.__init__ = init  # type: ignore[misc]  # of every value of this class, from here on
        return init.__get__(value, owner)


def _make_value_class(raw: type[ClassT], *, frozen: bool, kw_only: bool) -> type[ClassT]:
    # A class with an `__eq__` of its own has None for a hash, by Python's doing and not by its author's.
    own = {name for name, given in vars(raw).items() if given is not None}
    raw.__doc__ = raw.__doc__ or raw.__name__  # else the library writes the signature there
    made = dataclasses.dataclass(init=False, repr=False, eq=False, slots=True, kw_only=kw_only)(raw)
    fields = dataclasses.fields(made)  # type: ignore[arg-type]  # it has just become one
    methods: dict[str, object] = {
        "__init__": _Constructor(made),
        "__eq__": _make_eq([field.name for field in fields if field.compare]),
        "__hash__": None,
        "__repr__": _make_repr([field.name for field in fields if field.repr]),
    }
    if frozen:
        hashed = [field.name for field in fields if (field.compare if field.hash is None else field.hash)]
        methods |= {
            "__hash__": _make_hash(hashed),
            "__reduce__": _reduce,
            "__setattr__": _refuse_change,
            "__delattr__": _refuse_change,
        }
    for name, method in methods.items():
        if name not in own:
            setattr(made, name, method)
    return made


def _compile_init(made: Any) -> Callable[..., None]:
    """Return a constructor that writes the slots, which the refusal to change a field does not keep from it."""
    known: dict[str, Any] = {"MISSING": dataclasses.MISSING}
    parameters, lines = [], []
    fields = [field for field in dataclasses.fields(made) if field.init]
    for field in fields:
        name, default = field.name, f"default_{field.name}"
        known[f"set_{name}"] = getattr(made, name).__set__
        if field.default_factory is not dataclasses.MISSING:
            known[default] = field.default_factory
            parameters.append(f"{name}=MISSING")
            lines.append(f" set_{name}(self, {default}() if {name} is MISSING else {name})")
            continue
        if field.default is not dataclasses.MISSING:
            known[default] = field.default
        parameters.append(f"{name}={default}" if default in known else name)
        lines.append(f" set_{name}(self, {name})")
    if hasattr(made, "__post_init__"):
        lines.append(" self.__post_init__()")
    star = "*, " if any(field.kw_only for field in fields) else ""
    text = "\n".join([f"def __init__(self, {star}{', '.join(parameters)}):", *lines, " return None"])
    exec(text, known)  # noqa: S102  # names of fields, as `dataclasses` itself does
    init: Callable[..., None] = known["__init__"]
    return init


def _get_values(names: list[str]) -> Callable[[Any], Any]:
    return attrgetter(*names) if names else lambda _: ()


def _make_eq(names: list[str]) -> Callable[[Any, Any], bool]:
    get = _get_values(names)

    def eq(self: Any, other: Any) -> bool:
        return get(self) == get(other) if other.__class__ is self.__class__ else NotImplemented

    return eq


def _make_hash(names: list[str]) -> Callable[[Any], int]:
    get = _get_values(names)
    return lambda self: hash(get(self))


def _make_repr(names: list[str]) -> Callable[[Any], str]:
    def render(self: Any) -> str:
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{type(self).__qualname__}({shown})"

    return render


def _reduce(self: Any) -> tuple[Callable[[], Any], tuple[()]]:
    """Let values be copied and pickled by their constructor."""
    given = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
    return partial(self.__class__, **given), ()


def _refuse_change(self: Any, name: str, *_: object) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot change {name!r} of a {type(self).__qualname__}")
