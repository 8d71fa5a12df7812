"""Whether the tests see planted faults: sixty changes of one line each, tried one after the other in a copy of the tree.

``python -m tests.mutation [--first N] [--count N] [--minutes N] [--wide]`` runs the tests of the package of each fault
until the first that fails, and prints what survives; with ``--wide`` the sample of all tests has a look at survivors.
The status is 1 if a fault survives, 2 if tests fail without one.  A fault with which the tests take longer may hang.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from attrs import frozen

from streams.core.clock import SystemClock

ROOT = Path(__file__).parent.parent
#: What is not copied: nothing of it is needed by tests.
_LEFT = shutil.ignore_patterns(".*", "site", "__pycache__", "node_modules")


@frozen
class PlantedFault:
    """The file below ``streams``, the text of it that is replaced, which is there once, and the text instead."""

    file: str
    text: str
    instead: str

    @property
    def tests(self) -> str:
        """The folder with the tests of the package."""
        return f"tests/{self.file.partition('/')[0]}"


# ruff: noqa: E501
FAULTS = [
    PlantedFault(*row)
    for row in (
        ("runtime/tasks/checkpoint.py", "max(checkpoint.stream_time_ms, own.stream_time_ms)", "own.stream_time_ms"),
        ("runtime/tasks/checkpoint.py", "max(checkpoint.commits, own.commits)", "checkpoint.commits"),
        ("core/event_time/time_texts.py", "if span_ms >= size and len(parts) < 2:", "if span_ms > size and len(parts) < 2:"),
        ("runtime/tasks/order.py", "bisect_right if index <= bound[1]", "bisect_right if index < bound[1]"),
        ("runtime/tasks/order.py", "if (span.places[-1], span.index) > bound:", "if span.places[-1] > bound[0]:"),
        ("runtime/tasks/idle.py", "if due_ms is None or now_ms >= due_ms:", "if due_ms is None or now_ms > due_ms:"),
        ("runtime/tasks/queues.py", "self.fetched >= self.end_offset", "self.fetched > self.end_offset"),
        ("runtime/tasks/queues.py", "max(self.partition_time_ms, max(timestamps))", "max(timestamps)"),
        ("runtime/tasks/lane_queue.py", "if drop.offset >= lane.next_offset:", "if drop.offset > lane.next_offset:"),
        ("runtime/tasks/lane_queue.py", "max(lane.reached_ms, drop.place_ms)", "drop.place_ms"),
        ("runtime/tasks/punctuation.py", "self.due_ms += (missed + 1) *", "self.due_ms += max(1, missed) *"),
        ("runtime/tasks/punctuation.py", "and due <= now_ms:", "and due < now_ms:"),
        ("runtime/tasks/offset_metadata.py", "if len(text) > limit:", "if len(text) > limit + 9_999:"),
        ("runtime/tasks/offset_metadata.py", "following = lane + 1", "following = lane"),
        ("runtime/stores/restore.py", "end = min(end, limits.get(name, end))", "end = limits.get(name, end)"),
        ("runtime/stores/restore.py", "        while position < end:", "        while position < end - 1:"),
        ("runtime/stores/restore.py", "total += max(0, end - item.position)", "total += 0"),
        ("runtime/threads/committing.py", "if metadata.generation_id < 0:", "if metadata.generation_id < -1:"),
        ("runtime/threads/committing.py", "is_logged_last and not self.is_exactly_once", "is_logged_last and self.is_exactly_once"),
        ("runtime/threads/pace.py", "return min(self._config.poll_ms, due_ms)", "return self._config.poll_ms"),
        ("runtime/plan/sharing.py", "limit = each + 1 if above < extra else each", "limit = each + 1"),
        ("runtime/plan/sharing.py", "- position <= self.rules.acceptable_lag", "- position < self.rules.acceptable_lag"),
        ("runtime/assignment/assignment.py", "for member in order}) > 1", "for member in order}) > 2"),
        ("group/classic/coordinator.py", "group.pending):", "group.members):"),
        ("group/classic/coordinator.py", "if is_settled and is_same and not must_assign:", "if is_settled and is_same:"),
        ("group/classic/coordinator.py", "m.join_token is None and not m.is_static]", "m.join_token is None]"),
        ("group/classic/coordinator.py", "if not m.has_synced]", "if m.has_synced]"),
        ("group/state/states.py", "others = len(self.members) - (besides is not None)", "others = len(self.members)"),
        ("group/state/states.py", "max(order, key=lambda name: votes[name])", "order[0]"),
        ("group/client/member.py", "self._session_timeout_ms // 3))", "self._session_timeout_ms))"),
        ("group/client/member.py", "now_ms - pair[1] < self._session_timeout_ms", "now_ms - pair[1] < 0"),
        ("group/client/member.py", "now_ms - polled > self.config.max_poll_interval_ms", "now_ms < polled"),
        ("group/client/member.py", "if self.is_leader and not response.skip_assignment:", "if self.is_leader:"),
        ("broker/transactions.py", "transaction.updated_ms < now_ms - self.config", "transaction.updated_ms < now_ms + self.config"),
        ("broker/transactions.py", "max(self._next_producer_id, transaction.producer_id + 1)", "self._next_producer_id"),
        ("broker/transactions.py", "begun_ms = min(now_ms, transaction.started_ms)", "begun_ms = now_ms"),
        ("broker/logs/producers.py", "if stamp.epoch < producer.epoch:", "if stamp.epoch < 0:"),
        ("broker/logs/producers.py", "expected = 0 if is_new_epoch else", "expected = None if is_new_epoch else"),
        ("broker/logs/producers.py", "if distance + len(block) <= appended.length:", "if distance + len(block) < appended.length:"),
        ("broker/logs/producers.py", "item.first_offset <= offset <= item.marker_offset", "item.first_offset < offset <= item.marker_offset"),
        ("broker/logs/log.py", "if block.offsets[0] >= stable:", "if block.offsets[0] > stable:"),
        ("broker/logs/log.py", "storage.start_offset <= offset <= storage.end_offset", "storage.start_offset <= offset < storage.end_offset"),
        ("broker/logs/log.py", "if block.header.size > config.max_message_bytes:", "if block.header.size >= 2 * config.max_message_bytes:"),
        ("broker/fetches.py", "if is_ready or request.max_wait_ms <= 0 or", "if is_ready or"),
        ("broker/topics.py", "        if partitions < count:", "        if partitions < 0:"),
        ("broker/fetch_sessions.py", "session.epoch = 1 if session.epoch == _MOST else session.epoch + 1", "session.epoch += 1"),
        ("broker/fetch_sessions.py", "now_ms - eldest.used_ms < self.rest_ms", "now_ms - eldest.used_ms < 0"),
        ("clients/consumer/fetcher.py", "if now_ms >= self._retry_at_ms.get(node, 0):", "if True:"),
        ("clients/consumer/fetcher.py", "is state and state.position == position", "is state"),
        ("clients/consumer/fetcher.py", "entry.position = block.offsets[-1] + 1", "entry.position = block.offsets[-1]"),
        ("clients/consumer/positions.py", "        if answer.offset >= 0:", "        if answer.offset > 0:"),
        ("clients/producer/accumulator.py", "next(iter(self._unfinished)) > sequence", "next(iter(self._unfinished)) >= sequence"),
        ("clients/producer/accumulator.py", "stop = len(block) * (index + 1) // pieces", "stop = len(block) * index // pieces + 1"),
        ("clients/producer/accumulator.py", "if delivery.on_refused is None or len(self.block) < 2:", "if delivery.on_refused is None:"),
        ("clients/producer/sender.py", "self.failures = 0 if is_answered else self.failures + 1", "self.failures = 0"),
        ("clients/producer/sender.py", "if self.in_flight >= self.max_in_flight:", "if self.in_flight > self.max_in_flight:"),
        ("clients/producer/transactor.py", "if bumps_epoch and response.producer_epoch >= 0:", "if bumps_epoch and response.producer_epoch > 9:"),
        ("clients/metadata.py", "return None if leader < 0 else leader", "return leader"),
        ("clients/tcp/channel.py", "now_ms - self._used_ms > self.config.max_idle_ms", "now_ms < self._used_ms"),
        ("clients/consumer/subscription.py", "and not self.is_paused and not self.is_leaving", "and not self.is_leaving"),
    )
]  # fmt: skip


def outcome(tree: Path, tests: Sequence[str], limit_s: float) -> str:
    """Run tests in a copy of the project: they pass, fail, or take longer than a time."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "2", *tests]
    try:
        return "fail" if subprocess.run(command, cwd=tree, timeout=limit_s, capture_output=True).returncode else "pass"
    except subprocess.TimeoutExpired:
        return "take longer"


@contextmanager
def planted(fault: PlantedFault, tree: Path) -> Iterator[None]:
    """Have a fault in a copy of the project."""
    path = tree / "streams" / fault.file
    right = path.read_text()
    assert right.count(fault.text) == 1, fault
    path.write_text(right.replace(fault.text, fault.instead))
    try:
        yield
    finally:
        path.write_text(right)


def main(arguments: Sequence[str]) -> int:
    """Plant the faults, and return 1 if one survives."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("--first", type=int, default=0, help="number of the first fault")
    parser.add_argument("--count", type=int, default=len(FAULTS), help="how many are planted")
    parser.add_argument("--minutes", type=float, default=6, help="time of the tests of a fault")
    parser.add_argument("--wide", action="store_true", help="run the sample of all tests on survivors")
    options = parser.parse_args(arguments)
    survivors: list[int] = []
    clock = SystemClock()
    limit_s = 60 * options.minutes
    chosen = list(enumerate(FAULTS))[options.first : options.first + options.count]
    with tempfile.TemporaryDirectory(prefix="mutation-") as folder:
        tree = Path(folder, "tree")
        shutil.copytree(ROOT, tree, ignore=_LEFT)
        for tests in dict.fromkeys(fault.tests for _, fault in chosen):
            # Otherwise each fault would count as seen.
            if (told := outcome(tree, [tests], limit_s)) != "pass":
                print(f"{tests}: the tests {told} without a fault, within {limit_s:.0f} s; give more --minutes")
                return 2
        for number, fault in chosen:
            begun_ms = clock.monotonic_ms()
            with planted(fault, tree):
                told = outcome(tree, [fault.tests], limit_s)
                if told == "pass" and options.wide:
                    told = outcome(tree, [], 10 * limit_s)
            took_s = (clock.monotonic_ms() - begun_ms) // 1000
            print(f"{number}, {fault.file}, {fault.instead!r}: the tests {told}, {took_s} s", flush=True)
            survivors += [number] * (told == "pass")
    print(f"survivors: {', '.join(map(str, survivors)) or 'none'}")
    return int(bool(survivors))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
