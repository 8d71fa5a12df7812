"""Keeps the modules of two scripts apart in one process.

Two versions of a script usually have the same name in two folders, each with its own helper modules.
The modules that a script has imported are in ``sys.modules`` only within ``inside`` of its ``ScriptModules``.
"""

import importlib
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from types import ModuleType

from attrs import define, field

import streams

#: Folders of modules that all scripts share: this package, libraries, the standard library.
_SHARED = tuple(
    str(Path(folder).resolve())
    for folder in (
        str(Path(str(streams.__file__)).parent),
        *(sysconfig.get_path(kind) for kind in ("purelib", "platlib", "stdlib", "platstdlib")),
    )
)
#: Names of folders of libraries in every environment.
_LIBRARIES = frozenset({"site-packages", "dist-packages"})


@define(eq=False)
class ScriptModules:
    """The modules of one script, which are hidden from other scripts."""

    _modules: dict[str, ModuleType] = field(factory=dict)
    _path: list[str] = field(factory=list)

    @property
    def files(self) -> set[Path]:
        """The files of the modules, as resolved paths."""
        return {Path(file).resolve() for module in self._modules.values() if (file := module.__file__) is not None}

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Make the modules of the script importable within the ``with`` block, and keep newly imported ones."""
        outer = list(sys.path)
        before = set(sys.modules)
        hidden = {name: sys.modules[name] for name in self._modules if name in sys.modules}
        sys.modules.update(self._modules)
        sys.path[:0] = self._path
        importlib.invalidate_caches()
        try:
            yield
        finally:
            self._path = [folder for folder in sys.path if folder not in outer]
            sys.path[:] = outer
            for name in [name for name in sys.modules if name not in before or name in self._modules]:
                module = sys.modules[name]
                if name in self._modules or _is_own(module):
                    self._modules[name] = module
                    del sys.modules[name]
            sys.modules.update(hidden)


def _is_own(module: ModuleType) -> bool:
    """Return whether a module is the user's, not of this package, a library or the standard library."""
    file = getattr(module, "__file__", None)
    if file is None:
        # The module is a namespace package.
        folders = list(getattr(module, "__path__", ()))
        return bool(folders) and not any(_is_shared(folder) for folder in folders)
    return not _is_shared(file)


def _is_shared(file: str) -> bool:
    resolved = Path(file).resolve()
    # An environment may have libraries of another one behind it, and an extension is loaded once per process.
    is_library = not _LIBRARIES.isdisjoint(resolved.parts) or resolved.name.endswith(tuple(EXTENSION_SUFFIXES))
    return is_library or any(str(resolved).startswith(f"{folder}/") for folder in _SHARED)
