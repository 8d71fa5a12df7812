"""Writes the history of a world: what its producers sent and its consumers polled, as the clients saw it."""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import repeat
from typing import Any

from attrs import define, field

from streams.clients import Consumer, Producer
from streams.core.blocks.records import Block, TopicPartition
from streams.protocol.error_codes import ErrorCode
from streams.protocol.messages import (
    EndTxn,
    EndTxnResponse,
    InitProducerId,
    InitProducerIdResponse,
    Produce,
    ProduceResponse,
    TxnOffsetCommit,
)
from streams.protocol.request import Request, Response
from streams.testing.histories import ClientHistory, ClientRecord, OperationOutcome

#: Id and epoch of a producer, which no two sessions of transactional or idempotent producers share.
_Session = tuple[int, int]
#: A record as both sides see it, with its producer: sequence numbers are not known of parts of batches.
_Content = tuple[_Session, bytes | None, bytes | None, int]


@define(eq=False)
class _Transaction:
    process: str
    transactional_id: str | None
    session: _Session
    #: It is certain that it has no effect until a commit is sent.
    outcome: OperationOutcome = "failed"
    offsets: dict[TopicPartition, int] = field(factory=dict)


@define(eq=False)
class _Sent:
    """One record that was sent, once or again; ``attempts`` have not been answered by an error."""

    partition: TopicPartition
    content: _Content
    transaction: _Transaction | None
    attempts: int = 0
    is_acknowledged: bool = False
    offset: int | None = None

    @property
    def message(self) -> ClientRecord:
        """The record as its producer knows it."""
        return ClientRecord(self.partition, self.content, self.offset)


@define(eq=False)
class HistoryRecorder:
    """Notes requests and responses of producers, and the records and positions of consumers."""

    #: What consumers polled, in turn: the process, the partitions that had moved, and the records.
    _polls: list[tuple[str, list[TopicPartition], list[ClientRecord]]] = field(factory=list)
    _sent: dict[tuple[TopicPartition, _Session, int], _Sent] = field(factory=dict)
    _transactions: list[_Transaction] = field(factory=list)
    _open: dict[_Session, _Transaction] = field(factory=dict)
    _consumers: int = 0
    #: Commits that were sent again, or never answered, and records that were sent again without an answer.
    unknown_commits: int = 0
    unknown_sends: int = 0

    # --- producers ------------------------------------------------------------------------

    def on_send(self, process: str, request: Request) -> None:
        """Note a request before a process sends it."""
        match request:
            case Produce():
                for sent in self._records_of(request, process):
                    self.unknown_sends += sent.attempts > 0
                    sent.attempts += 1
            case TxnOffsetCommit():
                self._transaction_of(process, request).offsets.update(
                    {partition: committed.offset for partition, committed in request.offsets.items()}
                )
            case EndTxn(is_commit=True):
                transaction = self._transaction_of(process, request)
                self.unknown_commits += transaction.outcome == "unknown"
                transaction.outcome = "unknown"

    def on_received(self, request: Request, response: Response) -> None:
        """Note a response that the client has received."""
        match request, response:
            case Produce(), ProduceResponse():
                self._on_produced(request, response)
            case EndTxn(), EndTxnResponse(error=ErrorCode.NONE):
                ended = self._open.pop((request.producer_id, request.producer_epoch), None)
                if ended is not None and request.is_commit:
                    ended.outcome = "ok"
            case InitProducerId(), InitProducerIdResponse(error=ErrorCode.NONE):
                for transaction in list(self._open.values()):
                    if transaction.transactional_id == request.transactional_id:
                        self._forget(transaction)

    def open_transactions(self, process: str | None = None) -> int:
        """Return the number of transactions that have begun and not ended, of one process or of all."""
        return sum(process in (None, transaction.process) for transaction in self._open.values())

    def on_crash(self, process: str) -> None:
        """Note that a process has crashed, so that its transactions get no more requests."""
        for transaction in list(self._open.values()):
            if transaction.process == process:
                self._forget(transaction)

    def _forget(self, transaction: _Transaction) -> None:
        self.unknown_commits += transaction.outcome == "unknown"
        del self._open[transaction.session]

    def _on_produced(self, request: Produce, response: ProduceResponse) -> None:
        places: Counter[TopicPartition] = Counter()
        for sent in self._records_of(request):
            produced = response.partitions[sent.partition]
            if produced.error is ErrorCode.NONE and produced.base_offset >= 0:
                sent.offset = produced.base_offset + places[sent.partition]
                places[sent.partition] += 1
            if produced.error in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                sent.is_acknowledged = True
            else:
                sent.attempts -= 1

    def _records_of(self, request: Produce, process: str = "") -> Iterator[_Sent]:
        for partition, blocks in request.blocks.items():
            for block in blocks:
                stamp = block.producer
                assert stamp is not None, "producers are idempotent"
                session = (stamp.producer_id, stamp.epoch)
                for index, content in enumerate(_contents(block)):
                    place = (partition, session, stamp.sequence + index)
                    if place not in self._sent:
                        transaction = (
                            self._transaction(process, request.transactional_id, session)
                            if stamp.is_transactional
                            else None
                        )
                        self._sent[place] = _Sent(partition, content, transaction)
                    yield self._sent[place]

    def _transaction_of(self, process: str, request: EndTxn | TxnOffsetCommit) -> _Transaction:
        session = (request.producer_id, request.producer_epoch)
        return self._transaction(process, request.transactional_id, session)

    def _transaction(self, process: str, transactional_id: str | None, session: _Session) -> _Transaction:
        if session not in self._open:
            self._open[session] = _Transaction(process, transactional_id, session)
            self._transactions.append(self._open[session])
        return self._open[session]

    # --- consumers ------------------------------------------------------------------------

    def watch(self, client: Consumer | Producer) -> None:
        """Note what a consumer polls, and each partition whose position is not that behind the last poll."""
        if isinstance(client, Producer):
            return
        self._consumers += 1
        process = f"consumer {self._consumers}"
        poll = client.poll_blocks
        seek = client.seek
        states: dict[TopicPartition, Any] = {}

        def poll_blocks(timeout_ms: int = 0, max_records: int | None = None) -> dict[TopicPartition, list[Block]]:
            taken = poll(timeout_ms, max_records)
            # A partition that was assigned anew has another state.
            current = {partition: client._state.partitions.get(partition) for partition in taken}
            moved = [partition for partition, state in current.items() if states.get(partition) is not state]
            states.update(current)
            self._polls.append((process, moved, list(_messages(taken.items()))))
            return taken

        def seek_to(partition: TopicPartition, offset: int) -> None:
            seek(partition, offset)
            states.pop(partition, None)

        client.poll_blocks = poll_blocks  # type: ignore[method-assign]
        client.seek = seek_to  # type: ignore[method-assign]

    # --- the history ----------------------------------------------------------------------

    def history(self, logs: Iterable[tuple[TopicPartition, list[Block]]]) -> ClientHistory:
        """Return the history, in which somebody has polled the ``logs`` to their ends."""
        history = ClientHistory()
        counts: Counter[Any] = Counter((sent.partition, sent.content) for sent in self._sent.values())

        def told_apart(rows: Iterable[ClientRecord]) -> Iterator[ClientRecord]:
            """Yield the records with values of their own: of several with the same content, by their offsets."""
            for at, value, offset in rows:
                if counts[at, value] < 2:
                    yield ClientRecord(at, value, offset)
                elif offset is not None:
                    yield ClientRecord(at, (value, offset), offset)

        for process, moved, rows in (*self._polls, ("reader of all", [], list(_messages(logs)))):
            history.move(process, moved)
            history.poll(process, told_apart(rows))
        of_transaction: dict[_Transaction | None, list[_Sent]] = {None: []}
        for _, sent in sorted(self._sent.items()):
            of_transaction.setdefault(sent.transaction if sent.attempts else None, []).append(sent)
        for sent in of_transaction[None]:
            outcome: OperationOutcome = "ok" if sent.is_acknowledged else "unknown" if sent.attempts else "failed"
            history.transaction(f"writer {sent.content[0]}", sent=told_apart([sent.message]), outcome=outcome)
        polled = {row[::2]: row for *_, rows in self._polls for row in rows}
        committed: dict[TopicPartition, int] = {}
        for transaction in self._transactions:
            consumed: list[ClientRecord] = []
            for partition, offset in transaction.offsets.items() if transaction.outcome == "ok" else ():
                places = ((partition, number) for number in range(committed.get(partition, 0), offset))
                consumed += [polled[place] for place in places if place in polled]
                committed[partition] = max(committed.get(partition, 0), offset)
            rows = [sent.message for sent in of_transaction.get(transaction, ())]
            process = f"transactions of {transaction.session}"
            # Another consumer may have had the partitions since.
            history.move(process, transaction.offsets)
            history.transaction(
                process, sent=told_apart(rows), polled=told_apart(consumed), outcome=transaction.outcome
            )
        return history


def _messages(blocks: Iterable[tuple[TopicPartition, list[Block]]]) -> Iterator[ClientRecord]:
    for partition, parts in blocks:
        for block in parts:
            yield from map(ClientRecord, repeat(partition), _contents(block), block.offsets)


def _contents(block: Block) -> Iterator[_Content]:
    stamp = block.producer
    session = (-1, -1) if stamp is None else (stamp.producer_id, stamp.epoch)
    return zip(repeat(session), block.keys, block.values, block.timestamps)
