"""Names of a package that are loaded when somebody asks for them.

The SDK's packages take in all that they export: 3,150 modules, 2.6 s where relay's own start takes 0.7, of which a
session needs a third. Their ``__init__.py`` say by ``from .module import Name`` where each name lives.
"""

import ast
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType, SimpleNamespace
from typing import Any


@contextmanager
def late_names(top: str) -> Iterator[None]:
    """Let packages of ``top`` that are first imported meanwhile take in no name before somebody asks for it.

    A package that defines something itself is loaded as ever.
    """

    def find_spec(name: str, path: Sequence[str] | None = None, _target: ModuleType | None = None) -> ModuleSpec | None:
        if name.partition(".")[0] != top:
            return None
        spec = PathFinder.find_spec(name, path)
        if spec and spec.submodule_search_locations and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(name, spec.loader.path)
        return spec

    finder = SimpleNamespace(find_spec=find_spec)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


class _Loader(SourceFileLoader):
    def exec_module(self, module: ModuleType) -> None:
        body = ast.parse(self.get_data(self.path)).body
        if any(isinstance(node, ast.FunctionDef | ast.ClassDef) for node in body):
            super().exec_module(module)
            return
        imports = [node for node in body if isinstance(node, ast.ImportFrom) and node.level == 1]
        homes = {alias.asname or alias.name: (node.module, alias.name) for node in imports for alias in node.names}
        whole = [node.module for node in imports if node.names[0].name == "*"]

        def find_name(name: str) -> Any:
            if name in homes:
                home, own = homes[name]
                if home is None:
                    return import_module(f".{own}", module.__name__)
                return getattr(import_module(f".{home}", module.__name__), own)
            if not name.startswith("_"):
                for home in whole:
                    if hasattr(found := import_module(f".{home}", module.__name__), name):
                        return getattr(found, name)
            raise AttributeError(name)

        module.__getattr__ = find_name  # type: ignore[method-assign]  # PEP 562
