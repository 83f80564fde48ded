"""JSON Schema with the words of the code: of all settings, by which editors check `relay.toml`, and of any class."""

import ast
import inspect
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import is_dataclass
from itertools import pairwise
from typing import Any, get_args, get_type_hints, is_typeddict

from msgspec import Struct

from relay.config.decoding import describe
from relay.config.keys import KEYS
from relay.config.model import Settings


def render_schema() -> Mapping[str, Any]:
    """Return the schema of a settings file."""
    words = describe_fields(Settings)
    schemas, _ = describe(*(key.kind for key in KEYS.values()))
    properties = {
        name: {**_render_written(schema), "description": words[name]}
        for name, schema in zip(KEYS, schemas, strict=True)
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Settings of relay",
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
        "$defs": render_types(key.kind for key in KEYS.values()),
    }


def _render_written(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema of a setting as a file has it: ``none`` for no value, an entry alone for a list of one."""
    match schema:
        case {"anyOf": [*inner, {"type": "null"}]}:
            return {"anyOf": [*inner, {"const": "none"}]}
        case {"items": entry}:
            return {"anyOf": [schema, entry]}
        case _:
            return schema


def render_types(kinds: Iterable[Any]) -> dict[str, dict[str, Any]]:
    """Return the schema of each class in some types, by name; with its fields' words, in their order.

    A dataclass is written whole: all of its fields are required. A `Struct` is read: what it has no value for is left
    out.
    """
    kinds = tuple(kinds)
    known = {inner.__name__: inner for kind in kinds for inner in _iter_classes(kind)}
    parts = describe(*kinds)[1]
    for name, part in parts.items():
        part["description"] = " ".join(part["description"].split())
        if fields := part.get("properties"):
            words = describe_fields(known[name])
            for field, schema in fields.items():
                is_left_out = schema.pop("default", schema) is not schema
                schema.update({"description": words[field]} if field in words else {})
                if is_left_out and issubclass(known[name], Struct) and "anyOf" in schema:
                    fields[field] = {**schema.pop("anyOf")[0], **schema}
            part["properties"] = {field: fields[field] for field in get_type_hints(known[name])}
            part["required"] = [*part["properties"]] if is_dataclass(known[name]) else part["required"]
    return {name: parts[name] for name in {**known, **parts} if name in parts}


def _iter_classes(kind: Any) -> Iterator[type]:
    """Yield the classes in a type, and in their fields, each behind the class that has it."""
    if isinstance(kind, type):
        yield kind
    has_fields = is_typeddict(kind) or is_dataclass(kind) or (isinstance(kind, type) and issubclass(kind, Struct))
    for hint in get_type_hints(kind).values() if has_fields else get_args(kind):
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
