"""An embedded broker under a virtual clock, and a way to it that can fail."""

from collections.abc import Callable, Iterator

import pytest
from attrs import define, evolve, field

from streams.broker import EmbeddedBroker
from streams.core.clock import VirtualClock
from streams.protocol.admin_messages import ApiVersionsResponse
from streams.protocol.request import Request, Response
from streams.protocol.transport import Cluster, Connection, Traits


@define(eq=False)
class FaultyConnection:
    """Fails the requests that ``cluster.fails`` names, before or after the broker has acted."""

    cluster: "FaultyCluster"
    inner: Connection
    _failed: list[tuple[int, Response | Exception]] = field(factory=list)
    _muted: set[int] = field(factory=set)
    _next: int = -1

    outage = None

    @property
    def traits(self) -> Traits:
        return self.cluster.traits or self.inner.traits

    def send(self, node_id: int, request: Request) -> int:
        self.cluster.sent.append(request)
        if self.cluster.fails(request):
            self._next -= 1
            self._failed.append((self._next, ConnectionError("lost on the way")))
            return self._next
        answer = self.cluster.answers(request)
        if answer is not None:
            self._next -= 1
            self._failed.append((self._next, answer))
            return self._next
        number = self.inner.send(node_id, request)
        if self.cluster.loses_answer(request):
            self._muted.add(number)
            self._failed.append((number, ConnectionError("lost on the way back")))
        return number

    def poll(self, timeout_ms: int) -> list[tuple[int, Response | Exception]]:
        failed, self._failed = self._failed, []
        arrived = self.inner.poll(0 if failed else timeout_ms)
        if self.cluster.is_first_version:
            arrived = [
                (n, evolve(a, finalized_features={}) if isinstance(a, ApiVersionsResponse) else a) for n, a in arrived
            ]
        return [*failed, *(pair for pair in arrived if pair[0] not in self._muted)]

    def give_up(self, correlation_id: int) -> None:
        self.inner.give_up(correlation_id)

    def wakeup(self) -> None:
        self.inner.wakeup()

    def close(self) -> None:
        self.inner.close()


@define(eq=False)
class FaultyCluster:
    """A broker behind connections that fail on demand; ``sent`` is every request in order."""

    broker: Cluster
    fails: Callable[[Request], bool] = lambda request: False
    loses_answer: Callable[[Request], bool] = lambda request: False
    #: Answers in the broker's place.
    answers: Callable[[Request], Response | None] = lambda request: None
    sent: list[Request] = field(factory=list)
    #: Whether transactions are of the first version (KIP-890).
    is_first_version: bool = False
    #: Those of the broker if None.
    traits: Traits | None = None

    def connect(self, client_id: str) -> FaultyConnection:
        return FaultyConnection(self, self.broker.connect(client_id))


def first(count: int, kind: type) -> Callable[[Request], bool]:
    """Return a rule that is true of the first so many requests of a kind."""
    left = [count]

    def rule(request: Request) -> bool:
        if isinstance(request, kind) and left[0]:
            left[0] -= 1
            return True
        return False

    return rule


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(1_000_000)


@pytest.fixture
def broker(clock: VirtualClock) -> Iterator[EmbeddedBroker]:
    short = {"group.min.session.timeout.ms": "1"}
    with EmbeddedBroker(clock=clock, auto_create_topics=False, settings=short) as broker:
        broker.create_topic("t", partitions=2)
        yield broker


@pytest.fixture
def cluster(broker: EmbeddedBroker) -> FaultyCluster:
    return FaultyCluster(broker)


@pytest.fixture
def first_of() -> Callable[[int, type], Callable[[Request], bool]]:
    return first
