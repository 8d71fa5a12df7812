"""A table of a database as the input of ``streams replay``, through Spark's JDBC catalog and the driver of H2."""

import json
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import pytest

from tests.kafka.node import jars
from tests.waiting import WATCHDOG_S

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

SCRIPT = """
from datetime import datetime
from decimal import Decimal

from attrs import frozen

from streams import StreamsBuilder, Topic


@frozen
class Order:
    product: str
    price: Decimal
    at: datetime


orders = Topic("orders", key=str, value=Order, timestamp=lambda order: order.at, key_from=lambda order: order.product)


def topology(builder: StreamsBuilder) -> None:
    sold = builder.stream(orders).group_by_key()
    sold.aggregate(lambda: "0", lambda _, order, total: str(Decimal(total) + order.price), "sums").to_stream().to(
        Topic("totals", key=str, value=str)
    )
"""

ROWS = """
create schema "shop";
create table "shop"."orders" ("product" varchar(20), "price" decimal(9, 2), "at" timestamp with time zone);
insert into "shop"."orders" select concat('p', mod(x, 3)), x + 0.25,
    timestamp with time zone '2026-01-01 00:00:00+00' + x * interval '1' hour from system_range(0, 99);
"""


def test_table_of_a_database_is_replayed_from_a_time_on(tmp_path: Path) -> None:
    """The results are those of the rows of the database from then on, in order of time."""
    driver = ",".join(map(str, jars("jdbc")))
    url = f"jdbc:h2:{tmp_path}/db"
    shell = ["java", "-cp", driver, "org.h2.tools.Shell", "-url", url, "-user", "sa", "-password", "sa", "-sql", ROWS]
    subprocess.run(shell, check=True, capture_output=True, timeout=WATCHDOG_S)
    (tmp_path / "shop.py").write_text(SCRIPT)
    catalog = "spark.sql.catalog.db"
    settings = {
        "spark.jars": driver,
        catalog: "org.apache.spark.sql.execution.datasources.v2.jdbc.JDBCTableCatalog",
        f"{catalog}.url": url,
        f"{catalog}.driver": "org.h2.Driver",
        f"{catalog}.user": "sa",
        f"{catalog}.password": "sa",
    }
    streams = str(Path(sys.executable).with_name("streams"))
    command = [streams, "replay", "shop.py", "--input", "orders=table:db.shop.orders", "--output", "totals=out.jsonl"]
    command += ["--format", "value"]
    command += ["--master", "local[2]", "--since", "2026-01-02"]
    command += [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=WATCHDOG_S)
    assert done.returncode == 0, done.stderr

    expected: list[str] = []
    sums = dict.fromkeys(("p0", "p1", "p2"), Decimal(0))
    for number in range(24, 100):
        sums[f"p{number % 3}"] += number + Decimal("0.25")
        expected.append(str(sums[f"p{number % 3}"]))
    found = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [Decimal(value) for value in found] == list(map(Decimal, expected))
