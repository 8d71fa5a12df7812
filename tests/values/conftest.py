"""The servers of others: one Spark and one Postgres for the tests of one worker."""

from pathlib import Path

import pytest
from pyiceberg.utils.config import Config

from tests.connect.conftest import database as database
from tests.connect.conftest import postgres as postgres
from tests.formats.conftest import registry as registry
from tests.replay.conftest import _spark_and_port as _spark_and_port
from tests.replay.conftest import short_lived_java as short_lived_java
from tests.replay.conftest import spark as spark


@pytest.fixture
def iceberg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A catalog ``shop``."""
    monkeypatch.setenv("PYICEBERG_CATALOG__SHOP__TYPE", "sql")
    monkeypatch.setenv("PYICEBERG_CATALOG__SHOP__URI", f"sqlite:///{tmp_path}/catalog.db")
    monkeypatch.setenv("PYICEBERG_CATALOG__SHOP__WAREHOUSE", f"file://{tmp_path}")
    # The package reads its settings once.
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())
