"""A Postgres server for the tests of one worker, and a database for each test."""

import itertools
from collections.abc import Iterator

import pytest

from streams import EmbeddedBroker
from tests.postgres import Postgres, new_database, running

_NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    with running() as made:
        yield made


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    """A broker with the topic of the sources."""
    with EmbeddedBroker(auto_create_topics=False) as made:
        made.create_topic("orders", 1)
        yield made


@pytest.fixture
def database(postgres: Postgres) -> Iterator[str]:
    """The connection string of a database of its own."""
    with new_database(postgres, f"test_{next(_NUMBERS)}") as dsn:
        yield dsn
