"""An access log that is enriched by an HTTP service with delays, failures and restarts: nothing lost, nothing twice."""

from collections.abc import Sequence
from datetime import timedelta
from random import Random
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from streams import EmbeddedBroker, Producer, Streams, StreamsBuilder, Topic, TopicPartition
from streams.lookup import HttpLookUp
from tests.lookup.service import Service
from tests.waiting import until

#: Number of the line, and path of the request, by client address.
LINES = Topic("lines", key=str, value=tuple[int, str])
ENRICHED = Topic("enriched", key=str, value=str)
PARTITIONS = 2
_POLICY: dict[str, Any] = {"retries": 10_000, "backoff": timedelta(milliseconds=1), "retry_on": httpx.HTTPError}


def lines_of(rng: Random, count: int) -> list[tuple[str, str]]:
    """Return (client, path) of requests: few clients make most of them."""
    clients = [f"10.0.{rng.randrange(4)}.{rng.randrange(256)}" for _ in range(count // 6)]
    paths = ["/", "/favicon.ico", "/blog/tags/a b", "/search?q=ü&x=1", "/images/web/2009/banner.png"]
    return [
        (clients[min(rng.randrange(len(clients)), rng.randrange(len(clients)))], rng.choice(paths))
        for _ in range(count)
    ]


def unreliable(rng: Random) -> Any:
    """Return a behaviour: of five requests one is refused, some connections break, some answers are late."""

    def behave(key: str, number: int) -> tuple[int | None, float]:
        status = rng.choice((200,) * 7 + (503, 503, None))
        if key.endswith("7") and status == 200:
            status = 404
        return status, rng.choice((0, 0, 0.002, 0.02))

    return behave


def enrich(
    lines: Sequence[tuple[str, str]], service: Service, restarts: Sequence[int]
) -> tuple[list[str], list[str], Any]:
    """Enrich lines, with a restart of the application whenever it has so many results.

    Return the results, as a reader of committed records sees them, what they must be, and the metrics of the last run.
    """
    client: HttpLookUp[str, str] = HttpLookUp(
        service.url + "/clients/{key}", read=lambda answer: str(answer.json()["asked"])
    )
    page: HttpLookUp[str, str] = HttpLookUp(
        service.url + "/pages?id={key}", read=lambda answer: str(answer.json()["asked"])
    )

    async def with_page(value: tuple[int, str, str | None]) -> str:
        number, path, name = value
        return f"{number} {name} {quote(await page(path) or '')}"

    def topology(builder: StreamsBuilder) -> None:
        found = builder.stream(LINES).look_up(
            client,
            answer=str,
            cache=50,
            ttl=timedelta(milliseconds=500),
            stale=timedelta(seconds=1),
            **_POLICY,
        )
        named = found.map_pairs(lambda line, name: (*line, name), name="named")
        named.map_values_async(with_page, concurrency=20, **_POLICY).to(ENRICHED)

    settings: dict[str, Any] = {"processing_guarantee": "exactly_once_v2", "async_close_timeout_ms": 1}
    with EmbeddedBroker() as broker, Producer(broker) as producer:
        for topic in ("lines", "enriched"):
            broker.create_topic(topic, PARTITIONS)
        for number, (key, path) in enumerate(lines):
            producer.send(LINES, (number, path), key=key)
        producer.flush()
        for enough in (*restarts, len(lines)):
            with Streams(topology, application_id="app", broker=broker, **settings) as app:
                until(lambda enough=enough: _has(broker, enough))  # type: ignore[misc]
                metrics = {name: app.metrics.get(f"look-up-{name}") for name in ("hit", "stale-hit", "miss", "refresh")}
        results = [value.decode() for value in _committed(broker)]
    wanted = [f"{number} {_found(key)} {quote(_found(path) or '')}" for number, (key, path) in enumerate(lines)]
    return sorted(results), sorted(wanted), metrics


def _found(key: str) -> str | None:
    return None if key.endswith("7") else key


def _has(broker: EmbeddedBroker, enough: int) -> bool:
    """Whether there are enough committed results; reads them only if there are enough records of any kind."""
    ends = sum(broker.end_offset(TopicPartition("enriched", number)) for number in range(PARTITIONS))
    return ends >= enough and len(_committed(broker)) >= enough


def _committed(broker: EmbeddedBroker) -> list[bytes]:
    rows: list[bytes] = []
    for partition in (TopicPartition("enriched", number) for number in range(PARTITIONS)):
        end, position = broker.end_offset(partition), 0
        while position < end and (blocks := broker.read(partition, position, committed_only=True)):
            for block in blocks:
                rows += [value or b"" for value in block.values]
                position = block.offsets[-1] + 1
    return rows


@pytest.mark.slow
def test_each_line_is_enriched_once_though_service_and_application_restart() -> None:
    lines = lines_of(Random(1), 300)

    with Service(unreliable(Random(2)), life=150) as service:
        results, wanted, _ = enrich(lines, service, restarts=(50, 150))

    assert results == wanted
    assert service.starts > 1
    assert service.asked.total() > 300
