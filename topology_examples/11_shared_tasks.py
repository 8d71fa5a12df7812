"""A list of shops to be visited, shared out among as many instances as there are.

First round robin: neighbours in the list go to different instances.  Then sticky: when an instance comes or goes,
only as many shops change hands as must.

    python topology_examples/11_shared_tasks.py
"""

from typing import Literal

from streams import EmbeddedBroker
from streams.core.clock import VirtualClock
from streams.group import TaskDistribution

SHOPS = ("bakery", "cheese", "flowers", "fruit", "meat", "tea", "wine")


def settle(clock: VirtualClock, instances: dict[str, TaskDistribution]) -> None:
    """Let everybody hear of everybody."""
    for _ in range(8):
        clock.advance(1_000)
        for instance in instances.values():
            instance.poll()


def show(strategy: Literal["round_robin", "sticky"]) -> None:
    """Share the shops among two instances, then three, then two again."""
    clock = VirtualClock()
    with EmbeddedBroker(clock=clock) as broker:
        instances: dict[str, TaskDistribution] = {}

        def report(what: str) -> None:
            before = {shop: name for name, instance in instances.items() for shop in instance.tasks}
            settle(clock, instances)
            after = {shop: name for name, instance in instances.items() for shop in instance.tasks}
            moved = sum(before[shop] != after[shop] for shop in SHOPS if shop in before)
            print(f"{strategy}, {what}: {moved} of {len(SHOPS)} have moved to another instance")
            for name, instance in instances.items():
                print(f"  {name:<5} {' '.join(instance.tasks)}")

        for name in ("anna", "ben", "cleo"):
            instances[name] = TaskDistribution(broker, "visits", SHOPS, strategy=strategy, client_id=name, clock=clock)
            if name != "anna":
                report(f"{name} is there")
        instances.pop("anna").close()
        report("anna has left")
        for instance in instances.values():
            instance.close()


if __name__ == "__main__":
    show("round_robin")
    show("sticky")
