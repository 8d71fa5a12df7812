"""The servers of others: one Spark and one Postgres for the tests of one worker."""

from tests.connect.conftest import database as database
from tests.connect.conftest import postgres as postgres
from tests.replay.conftest import _spark_and_port as _spark_and_port
from tests.replay.conftest import short_lived_java as short_lived_java
from tests.replay.conftest import spark as spark
