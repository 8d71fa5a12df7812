"""Pages that are made from the code are current."""

import importlib.util
from pathlib import Path


def test_page_of_settings_is_that_of_the_code():
    source = Path(__file__).parents[1] / "docs" / "settings.py"
    spec = importlib.util.spec_from_file_location("docs_settings", source)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    assert module.PAGE.read_text(encoding="utf-8") == module.page(), "run: python docs/settings.py"
