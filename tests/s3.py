"""A server of S3 in this process, what it takes to reach it, and a shop whose history is there."""

import json
import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.request import Request, urlopen

import pytest
from attrs import frozen

#: What a server asks for that believes everybody.
_ACCESS = {
    "AWS_ACCESS_KEY_ID": "tests",
    "AWS_SECRET_ACCESS_KEY": "tests",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}
_FILES = 3
_ROWS = 100

#: The application.
SHOP = """
from streams import StreamsBuilder, Topic

orders = Topic("orders", key=str, value=dict, timestamp=lambda order: order["at"], key_from=lambda order: order["user"])
totals = Topic("totals", key=str, value=int)

def note(_, order):
    pass

def topology(builder: StreamsBuilder) -> None:
    spent = builder.stream(orders).peek(note).select_key(lambda _, order: order["item"]).repartition("by-item")
    spent = spent.group_by_key().aggregate(lambda: 0, lambda _, order, sum: sum + order["price"], "spent")
    spent.to_stream().to(totals)
"""


def _order(number: int) -> dict[str, Any]:
    return {"number": number, "at": 1_000 * number, "user": f"u{number % 3}", "item": f"i{number % 5}", "price": number}


def expected_totals() -> "Counter[tuple[str, int]]":
    """Return each total of the shop after each order."""
    sums: Counter[str] = Counter()
    found: Counter[tuple[str, int]] = Counter()
    for order in map(_order, range(_FILES * _ROWS)):
        sums[order["item"]] += order["price"]
        found[order["item"], sums[order["item"]]] += 1
    return found


@frozen
class Bucket:
    """A bucket, and the environment in which processes reach it."""

    uri: str
    environment: dict[str, str]

    def write(self, name: str, data: bytes) -> None:
        """Write an object."""
        system, path = self._system(name)
        with system.open_output_stream(path) as stream:
            stream.write(data)

    def write_history(self) -> None:
        """Write the orders of the shop, in three files."""
        for number in range(_FILES):
            rows = map(_order, range(number * _ROWS, (number + 1) * _ROWS))
            self.write(f"history/{number}.jsonl", "".join(f"{json.dumps(row)}\n" for row in rows).encode())

    def totals(self, folder: str) -> "Counter[tuple[str, int]]":
        """Return the totals in a folder of Parquet files."""
        return Counter((row["key"], row["value"]) for row in self._rows(folder))

    def _rows(self, folder: str) -> list[dict[str, Any]]:
        """Return the rows of a folder of Parquet files, whose columns are in the names of folders, too."""
        import pyarrow.dataset as ds

        system, path = self._system(folder)
        found: list[dict[str, Any]] = (
            ds.dataset(path, filesystem=system, format="parquet", partitioning="hive").to_table().to_pylist()
        )
        return found

    def names(self, folder: str) -> list[str]:
        """Return the names of all objects below a folder."""
        from pyarrow.fs import FileSelector

        system, path = self._system(folder)
        return [info.path for info in system.get_file_info(FileSelector(path, recursive=True)) if info.is_file]

    def _system(self, name: str) -> tuple[Any, str]:
        from pyarrow.fs import FileSystem

        return FileSystem.from_uri(f"{self.uri}/{name}")  # type: ignore[no-any-return]


@contextmanager
def s3_bucket(name: str) -> Iterator[Bucket]:
    """A bucket on a server of its own, which this process and those that it starts reach."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.WARNING)  # It tells each request.
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        environment = {**_ACCESS, "AWS_ENDPOINT_URL": f"http://{host}:{port}", "NO_PROXY": "127.0.0.1"}
        with pytest.MonkeyPatch.context() as patch:
            for variable, value in environment.items():
                patch.setenv(variable, value)
            # All servers of a process share their buckets.
            urlopen(Request(f"{environment['AWS_ENDPOINT_URL']}/moto-api/reset", method="POST")).close()
            urlopen(Request(f"{environment['AWS_ENDPOINT_URL']}/{name}", method="PUT")).close()
            yield Bucket(f"s3://{name}", environment)
    finally:
        server.stop()
