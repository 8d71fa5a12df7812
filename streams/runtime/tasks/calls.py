"""The async function calls of one task, and the forwarding of their results.

The nodes keep the records whose calls are in flight.  After each run of records, the task's driver starts the calls for
new records; between runs, it forwards the results of finished calls.  The module imports only ``core`` and
``topology``.
"""

from attrs import define, field

from streams.core.concurrency.calls import BlockingLoop, CallLoop
from streams.topology import CallingNode

_NO_LIMIT = 1 << 62


@define(eq=False)
class TaskCalls:
    """The nodes of a task that call async functions, downstream nodes first.

    On a blocking event loop, each node waits for its calls itself, after a certain number of records.
    """

    loop: CallLoop
    _is_owner: bool
    nodes: list[CallingNode] = field(factory=list)

    @classmethod
    def on(cls, loop: CallLoop | None) -> "TaskCalls":
        """Create the calls of a task on an event loop; if it is None, on a new blocking loop that ``close`` closes."""
        return cls(BlockingLoop() if loop is None else loop, loop is None)

    def add(self, node: CallingNode) -> None:
        """Add a node that calls an async function; its downstream nodes must have been added before."""
        self.nodes.append(node)

    @property
    def room(self) -> int:
        """The number of further records that every node can accept."""
        return _NO_LIMIT if isinstance(self.loop, BlockingLoop) else min(node.room for node in self.nodes)

    def hand_over(self) -> None:
        for node in self.nodes:
            node.hand_over()

    def forward(self) -> int:
        """Start the calls for new records, and forward results of finished calls; return the number of results.

        A node does not forward more results than the other nodes can accept.  What is left then waits for a call that
        is in flight: nothing else would wake the thread.
        """
        self.hand_over()
        if not isinstance(self.loop, BlockingLoop):
            self.loop.step()
        total = 0
        while count := self._forward():
            total += count
            self.hand_over()
        return total

    def _forward(self) -> int:
        """Let each node forward as many results as the nodes before it can accept, and return the number of results."""
        count = 0
        limit = _NO_LIMIT
        for node in self.nodes:
            count += node.forward(limit)
            limit = min(limit, node.room)
        return count

    def finish(self) -> bool:
        """Forward the results of finished calls or, on a blocking loop, of all calls.

        Return whether there were any results or, on a blocking loop, any calls.

        On a blocking loop, the calls of upstream nodes are awaited first.
        """
        if not isinstance(self.loop, BlockingLoop):
            return self.forward() > 0
        was_in_flight = self.in_flight > 0
        for node in reversed(self.nodes):
            node.finish()
        return was_in_flight

    @property
    def in_flight(self) -> int:
        """The number of records whose results have not been forwarded yet."""
        return sum(len(node.held) for node in self.nodes)

    def save(self) -> None:
        for node in self.nodes:
            node.save()

    def close(self) -> None:
        for node in self.nodes:
            node.close()
        if self._is_owner:
            self.loop.close()
