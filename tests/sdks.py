"""The vendors' SDKs: thousands of models, which take seconds in each process that collects tests.

So they are imported when something of them is first asked for, and the tests that do so stand together.
"""

import importlib
import warnings
from functools import cache
from typing import Any

import pytest


class Late:
    """A module that is not imported yet."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith(("_", "pytest")):  # pytest looks whether it is a fixture, and which marks it has
            raise AttributeError(attribute)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return getattr(importlib.import_module(self._name), attribute)


anthropic: Any = Late("anthropic")
openai: Any = Late("openai")
genai: Any = Late("google.genai")
errors: Any = Late("google.genai.errors")
types: Any = Late("google.genai.types")


def needs_sdk(item: pytest.Item) -> bool:
    """Return whether a test asks for an SDK, by itself or by its fixture."""
    module = item.getparent(pytest.Module)
    asks = module is not None and _asks_for_sdk(module)
    return asks or (isinstance(item, pytest.Function) and not {"sdk", "play"}.isdisjoint(item.fixturenames))


@cache
def _asks_for_sdk(module: pytest.Module) -> bool:
    return any(isinstance(value, Late) for value in vars(module.obj).values())
