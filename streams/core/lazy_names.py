"""Public names of a package that are loaded when they are used.  This module imports no other module of the package."""

import ast
from collections import defaultdict
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from os.path import splitext
from typing import Any

import lazy_loader


def names_of_stub(spec: ModuleSpec) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` of a package, whose ``__init__.pyi`` imports its names.

    ``attach_stub`` of lazy_loader opens a file, and there is none in the zip file that workers of Spark get.
    """
    loader: Any = spec.loader
    names: defaultdict[str, list[str]] = defaultdict(list)
    for statement in ast.parse(loader.get_data(f"{splitext(str(spec.origin))[0]}.pyi")).body:
        if isinstance(statement, ast.ImportFrom) and statement.module:
            names[statement.module] += [alias.name for alias in statement.names]
    attached: tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]
    attached = lazy_loader.attach(spec.name, submod_attrs=names)
    return attached
