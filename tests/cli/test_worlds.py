"""Modules of scripts: those of a script are its own, libraries are shared."""

import importlib
import sys

import pytest

from streams.cli.worlds import ScriptModules


@pytest.mark.parametrize("folder", ["site-packages", "dist-packages", "script"])
def test_libraries_of_any_environment_are_loaded_once(folder, tmp_path, monkeypatch):
    """An environment may have those of another one behind it, and extensions cannot be loaded twice."""
    place = tmp_path / folder
    place.mkdir()
    (place / "loaded_for_a_world.py").write_text("")
    monkeypatch.syspath_prepend(str(place))

    world = ScriptModules()
    with world.inside():
        importlib.import_module("loaded_for_a_world")

    is_shared = sys.modules.pop("loaded_for_a_world", None) is not None
    assert is_shared is (folder != "script")
    assert world.files == (set() if is_shared else {place / "loaded_for_a_world.py"})
