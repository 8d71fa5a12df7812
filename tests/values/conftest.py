"""The servers of others, and a catalog."""

from pathlib import Path

import pytest
from pyiceberg.utils.config import Config

from tests.connect.conftest import database as database
from tests.connect.conftest import postgres as postgres
from tests.formats.conftest import registry as registry


@pytest.fixture
def iceberg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A catalog ``shop``."""
    monkeypatch.setenv("PYICEBERG_CATALOG__SHOP__TYPE", "sql")
    monkeypatch.setenv("PYICEBERG_CATALOG__SHOP__URI", f"sqlite:///{tmp_path}/catalog.db")
    monkeypatch.setenv("PYICEBERG_CATALOG__SHOP__WAREHOUSE", f"file://{tmp_path}")
    # The package reads its settings once.
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())
