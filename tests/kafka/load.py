"""A load on brokers that fail: what is sent is read once, by a plain and a transactional producer and a group."""

import threading
from collections.abc import Callable
from contextlib import suppress

from attrs import define, field

from streams.clients import Admin, Consumer, Producer
from streams.clients.tcp import TcpCluster
from streams.core.errors import RebalanceInProgressError
from streams.protocol.messages import TopicSpec
from tests.waiting import WATCHDOG_MS, until

TOPICS = ("plain", "exact")


@define
class Load:
    """Two producers in threads of their own; the group reads in ``work`` and ``turn``."""

    cluster: TcpCluster
    partitions: int
    #: Whether a commit may be tried: without any broker it takes until its timeout.
    may_commit: Callable[[], bool] = lambda: True
    _stop: threading.Event = field(factory=threading.Event, init=False)
    _failures: list[BaseException] = field(factory=list, init=False)
    _sent: dict[str, int] = field(factory=lambda: dict.fromkeys(TOPICS, 0), init=False)
    _seen: dict[str, list[int]] = field(factory=lambda: {topic: [] for topic in TOPICS}, init=False)
    _consumer: Consumer = field(init=False)

    def bear(self, disturb: Callable[["Load"], None]) -> None:
        """Send and read while the brokers are disturbed, then check that each record was read once."""
        with Admin(self.cluster) as admin:
            admin.create_topics([TopicSpec(topic, self.partitions) for topic in TOPICS])
        threads = [threading.Thread(target=self._guarded, args=(send,)) for send in (self._plain, self._exact)]
        with Consumer(
            self.cluster,
            "g",
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            enable_auto_commit=False,
            # It does not poll while a broker starts.
            session_timeout_ms=WATCHDOG_MS,
        ) as self._consumer:
            self._consumer.subscribe(TOPICS)
            for thread in threads:
                thread.start()
            try:
                disturb(self)
            finally:
                self._stop.set()
                for thread in threads:
                    thread.join()
            assert not self._failures
            until(lambda: all(len(self._seen[topic]) >= self._sent[topic] for topic in TOPICS), self.turn)
        for topic, numbers in self._seen.items():
            assert sorted(numbers) == list(range(self._sent[topic])), topic

    def turn(self) -> None:
        """Read what there is, for a moment, and commit it."""
        for record in self._consumer.poll(100):
            self._seen[record.topic].append(int(record.value))
        if self.may_commit():
            with suppress(RebalanceInProgressError):
                self._consumer.commit_sync()

    def work(self) -> None:
        """Go on until some hundred records more have been sent to each topic."""
        reached = {topic: count + 200 for topic, count in self._sent.items()}
        until(lambda: all(self._sent[topic] > reached[topic] for topic in TOPICS) or bool(self._failures), self.turn)
        assert not self._failures

    def _send(self, producer: Producer, topic: str) -> None:
        producer.send(topic, b"%d" % self._sent[topic], partition=self._sent[topic] % self.partitions)
        self._sent[topic] += 1

    def _plain(self) -> None:
        with Producer(self.cluster, linger_ms=1, client_id="plain") as producer:
            while not self._stop.is_set():
                self._send(producer, "plain")
                if self._sent["plain"] % 60 == 0:
                    producer.flush()

    def _exact(self) -> None:
        with Producer(self.cluster, transactional_id="tx", client_id="exact") as producer:
            producer.init_transactions()
            while not self._stop.is_set():
                with producer.transaction():
                    for _ in range(10):
                        self._send(producer, "exact")

    def _guarded(self, send: Callable[[], None]) -> None:
        try:
            send()
        except BaseException as error:
            self._failures.append(error)
