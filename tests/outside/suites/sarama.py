"""Sarama's functional tests: its tests cut and slow connections themselves, through Toxiproxy."""

import json
import urllib.request
from collections.abc import Iterator

from tests.kafka.processes import Started
from tests.outside.gotests import built_tests, fetched_module, run_tests
from tests.outside.suite import Outcome, Room, Suite
from tests.waiting import until

MODULE = "github.com/IBM/sarama"
VERSION = "1.61.1"
TOXIPROXY = "github.com/Shopify/toxiproxy/v2/cmd/server@v2.12.0"
#: Where the tests look for the proxies of five brokers; all lead to ours.
PROXIES = range(29091, 29096)
#: Functional tests are those that are built with a tag; the others talk to brokers of their own.
FUNCTIONAL = "^TestFunc|^TestInterOp|^TestVersionMatrix"


def run(room: Room) -> Iterator[Outcome]:
    """Run the functional tests behind proxies; the addresses are built into them."""
    folder = fetched_module(room, MODULE, VERSION)
    program = built_tests(room, folder, tags="functional")
    room.fetch("go", "install", TOXIPROXY, env={"GOBIN": str(room.cache)})
    for port in PROXIES:
        room.is_free(port)
    room.is_free(8474)
    # As the brokers of its own file for Docker: the first one's number is in the name of its proxy.
    options = ("--no-auto-create", "--set", "node.id=1")
    with (
        room.broker(*options, advertised=f"127.0.0.1:{PROXIES[0]}") as broker,
        # It has lines for each connection, and stands still with a pipe that nobody reads.
        Started([str(room.cache / "server"), "-port", "8474"], room.logs / "toxiproxy.log"),
    ):
        until(_is_up)
        for number, port in enumerate(PROXIES, 1):
            listen, upstream = f"127.0.0.1:{port}", f"127.0.0.1:{broker.port}"
            _post("/proxies", {"name": f"kafka{number}", "listen": listen, "upstream": upstream, "enabled": True})
        env = {"TOXIPROXY_ADDR": "http://127.0.0.1:8474", "KAFKA_VERSION": "4.1.0"}
        pattern = room.only or FUNCTIONAL
        yield from run_tests(room, program, folder, f"-test.run={pattern}", env=env)


def _is_up() -> bool:
    try:
        with urllib.request.urlopen("http://127.0.0.1:8474/version", timeout=5):
            return True
    except OSError:
        return False


def _post(path: str, body: dict[str, object]) -> None:
    request = urllib.request.Request(f"http://127.0.0.1:8474{path}", json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=5):
        pass


SUITE = Suite(
    name="sarama",
    title="Sarama (Go)",
    version=VERSION,
    origin=f"the functional tests of `{MODULE}` from the Go module proxy, with Toxiproxy",
    needs=("go",),
    limit_s=3_600.0,
    run=run,
)
