"""All settings as JSON Schema, which editors complete and check `relay.toml` by; made from what relay reads them by."""

import ast
import inspect
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

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
