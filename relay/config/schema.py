"""JSON Schema with the words of the code: of all settings, by which editors check `relay.toml`, and of any class."""

import ast
import inspect
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import is_dataclass
from itertools import pairwise
from typing import Any, get_args, get_type_hints, is_typeddict

from msgspec.json import schema_components

from relay.config.keys import KEYS
from relay.config.model import Settings


def render_schema() -> Mapping[str, Any]:
    """Return the schema of a settings file."""
    words = describe_fields(Settings)
    properties = {name: {"description": words.get(name, ""), **key.read.schema} for name, key in KEYS.items()}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Settings of relay",
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
    }


def render_types(kinds: Iterable[Any]) -> dict[str, dict[str, Any]]:
    """Return the schema of each class and of those in its fields, by name; with the fields' words, in their order.

    A dataclass is written whole: all of its fields are required.
    """
    kinds = tuple(kinds)
    known = {kind.__name__: kind for kind in (*kinds, *(inner for kind in kinds for inner in _iter_classes(kind)))}
    parts = schema_components(kinds, ref_template="#/$defs/{name}")[1]
    for name, part in parts.items():
        part["description"] = " ".join(part["description"].split())
        if fields := part.get("properties"):
            words = describe_fields(known[name])
            for field, schema in fields.items():
                schema.pop("default", None)
                schema.update({"description": words[field]} if field in words else {})
            part["properties"] = {field: fields[field] for field in get_type_hints(known[name])}
            part["required"] = [*part["properties"]] if is_dataclass(known[name]) else part["required"]
    return {name: parts[name] for name in {**known, **parts} if name in parts}


def _iter_classes(kind: Any) -> Iterator[type]:
    """Yield the classes in the fields of a class, or inside of a type, each behind the class that has it."""
    is_class = is_typeddict(kind) or is_dataclass(kind)
    for hint in get_type_hints(kind).values() if is_class else get_args(kind):
        yield from [hint] if isinstance(hint, type) else []
        yield from _iter_classes(hint)


def describe_fields(kind: type) -> Mapping[str, str]:
    """Return what each field of a value means, in its own words; on one line each."""
    return dict(_iter_docs(ast.parse(inspect.getsource(kind))))


def _iter_docs(tree: ast.Module) -> Iterator[tuple[str, str]]:
    [body] = [node.body for node in tree.body if isinstance(node, ast.ClassDef)]
    for field, after in pairwise(body):
        match field, after:
            case (ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text)))):
                yield name, " ".join(text.replace("``", "`").split())
            case _:
                pass
