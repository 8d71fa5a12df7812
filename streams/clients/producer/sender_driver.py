"""Drives a producer's sender: any thread that sends, flushes or waits for a result, one at a time.

A background thread drives it while no other does: from the start if batches linger, otherwise from the first record
that is not acknowledged at once.

Lock rules: the sender's ``lock`` guards the accumulator and the sender, and is never held while a thread waits.
A thread that drives the sender sets a flag under the lock, instead of holding a lock during network I/O.  The other
threads wait for a signal that is set after each iteration.  Callbacks run after an iteration, when neither
the lock nor the flag is held.
Of the other packages, this module imports only ``core``.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from streams.clients.errors import RequestTimeoutError
from streams.clients.producer.delivery import Delivery
from streams.clients.producer.sender import Sender
from streams.core.clock import Deadline
from streams.core.concurrency.threads import Signal, Threads, Worker
from streams.core.errors import BrokerError, ClientClosedError

log = logging.getLogger(__name__)

#: Longest wait of the driving thread for responses, in milliseconds.
POLL_MS: Final = 50

# Longest sleep of the background thread in milliseconds; the thread is woken for work.
_IDLE_MS: Final = 60_000


class SenderDriver:
    """The driver of a producer's sender.

    ``has_thread`` starts the background thread now; ``may_start`` starts it with the first record that is not
    acknowledged at once.
    """

    def __init__(self, sender: Sender, threads: Threads, *, has_thread: bool, may_start: bool) -> None:
        self._sender = sender
        self._threads = threads
        self._network = sender.network
        self._clock = sender.clock
        self._lock = sender.lock
        self._accumulator = sender.accumulator
        self._failure: BrokerError | None = None
        self._is_driven = False
        self._is_closed = False
        self._waiters: list[Signal] = []
        self._worker: Worker | None = None
        self._may_start = may_start
        self._is_orphan = False
        if has_thread:
            self.ensure_driven()

    def ensure_driven(self) -> None:
        """Start the background thread, unless it runs already."""
        with self._lock:
            if self._worker is None and not self._is_closed:
                self._worker = self._threads.start(f"{self._sender.settings.client_id}-sender", self._run)

    def orphan(self) -> None:
        """Let the background thread end when nothing is outstanding, because the producer is no longer referenced.

        The thread is not woken, because this may be called by the garbage collector in any thread.
        """
        self._is_orphan = True

    @property
    def has_outstanding(self) -> bool:
        """Whether records are queued or requests are in flight."""
        return self._sender.in_flight > 0 or not self._accumulator.is_empty

    def take_failure(self) -> BrokerError | None:
        """Return the error of the first record that has failed since the last call, or None if no record has failed."""
        failure = self._failure
        self._failure = None
        return failure

    def close(self) -> None:
        """Stop the background thread and the network; fail unacknowledged records."""
        self._is_closed = True
        self._network.wakeup()
        worker = self._worker
        if worker is not None and not worker.is_current:
            worker.join(2 * POLL_MS + self._sender.settings.client.request_timeout_ms)
        with self._lock:
            # Another thread that is in ``poll`` ends with an error, because the connection is closed.
            is_mine = not self._is_driven
            self._is_driven = True
        self._network.close()
        if is_mine:
            self._end_iteration()
        self._sender.drop_all(BrokerError("the producer was closed before this was sent"))
        self._settle()

    def run_once(self, timeout_ms: int) -> bool:
        """Drive the sender, or wait while another thread drives it; return whether anything may have changed."""
        with self._lock:
            is_mine = not self._is_driven
            if is_mine:
                self._is_driven = True
            else:
                signal = self._threads.signal()
                self._waiters.append(signal)
        if not is_mine:
            # The driving thread may sleep past the next due time.
            self._network.wakeup()
            return signal.wait(min(max(1, timeout_ms), POLL_MS))
        try:
            has_progress = self._sender.run_once(timeout_ms)
        finally:
            self._end_iteration()
        return self._settle() or has_progress

    def _end_iteration(self) -> None:
        """Let another thread drive the sender."""
        with self._lock:
            self._is_driven = False
            waiters = self._waiters
            self._waiters = []
        for waiter in waiters:
            waiter.set()

    def send_due(self, *, is_due: bool = True) -> None:
        """Send due batches unless a thread is already driving; wake the background thread, if any, if ``is_due``."""
        if self._worker is not None:
            if is_due:
                self._network.wakeup()
            return
        while self._can_send() and self.run_once(0):
            pass
        if self._may_start and self.has_outstanding:
            self.ensure_driven()

    def _can_send(self) -> bool:
        """Whether something is due that no other thread sends."""
        with self._lock:
            if self._is_driven or self._sender.in_flight >= self._sender.max_in_flight:
                return False
            now = self._clock.monotonic_ms()
            return self._sender.next_ms(now) == now

    def flush(self, timeout_ms: int | None = None) -> None:
        """Wait until all records sent so far are acknowledged or have failed."""
        sequence = self._accumulator.last_sequence
        self._await(sequence, timeout_ms, partial(self._is_settled, sequence))

    def has_acknowledged(self, sequence: int) -> bool:
        """Return whether all batches up to number ``sequence`` are acknowledged; false after an untaken failure."""
        return self._is_settled(sequence) and self._failure is None

    def await_delivery(self, delivery: Delivery, timeout_ms: int | None) -> None:
        """Drive the sender until a delivery is done or the timeout (default: delivery plus request timeout) expires."""
        self._await(delivery.sequence, timeout_ms, delivery.done)

    def await_room(self, size_bytes: int) -> None:
        """Wait until the buffer has room for ``size_bytes``, or is empty.

        Raises:
            RequestTimeoutError: the buffer has no room within ``max_block_ms``.
        """
        settings = self._sender.settings
        max_bytes = settings.buffer_memory_bytes

        def has_room() -> bool:
            used_bytes = self._accumulator.used_bytes
            return not used_bytes or used_bytes + size_bytes <= max_bytes

        with self._lock:
            self._accumulator.request_flush(self._accumulator.last_sequence)
        self.wait(
            has_room,
            settings.max_block_ms,
            f"no room for {size_bytes} bytes within max_block_ms={settings.max_block_ms}: "
            f"buffer_memory_bytes={max_bytes} are waiting to be acknowledged",
        )

    def wait(self, is_done: Callable[[], bool], timeout_ms: int, message: str) -> None:
        """Drive the sender until a condition holds.

        Raises:
            RequestTimeoutError: the timeout expires; ``message`` is its text.
        """
        deadline = Deadline(self._clock, self._clock.monotonic_ms() + timeout_ms)
        has_progress = True
        while not is_done():
            remaining_ms = deadline.remaining_ms(has_progress=has_progress)
            if not remaining_ms and not has_progress:
                raise RequestTimeoutError(message)
            has_progress = self.run_once(min(remaining_ms, POLL_MS))

    # --- inside -----------------------------------------------------------------------

    def _run(self) -> None:
        """Send due batches and process responses until the driver is closed; run by the background thread."""
        while not self._is_closed and not (self._is_orphan and not self.has_outstanding):
            try:
                self.run_once(self._idle_ms())
            except ClientClosedError:
                return
            except Exception:
                # This error has no caller to report to, and the other records must still be sent.
                log.exception("an iteration of the sender has failed")

    def _idle_ms(self) -> int:
        now = self._clock.monotonic_ms()
        next_ms = self._sender.next_ms(now)
        # A thread that adds work wakes the network.
        return _IDLE_MS if next_ms is None else max(0, min(_IDLE_MS, next_ms - now))

    def _settle(self) -> bool:
        """Complete finished deliveries, whose callbacks may drive the sender; return whether there were any."""
        finished = self._sender.finished
        has_any = False
        while finished:
            try:
                parcel, base_offset, error = finished.popleft()
            except IndexError:
                break
            has_any = True
            if error is None:
                parcel.acknowledge(base_offset)
            elif not parcel.gives_back(error):
                if self._failure is None:
                    self._failure = error
                parcel.fail(error)
        return has_any

    def _await(self, sequence: int, timeout_ms: int | None, is_done: Callable[[], bool]) -> None:
        settings = self._sender.settings
        if timeout_ms is None:
            timeout_ms = settings.delivery_timeout_ms + settings.client.request_timeout_ms
        with self._lock:
            self._accumulator.request_flush(sequence)
        self.wait(is_done, timeout_ms, "not everything sent is acknowledged in time; is the broker running?")

    def _is_settled(self, sequence: int) -> bool:
        with self._lock:  # Other threads add batches, and finish them.
            return self._accumulator.is_finished_through(sequence) and not self._sender.finished
