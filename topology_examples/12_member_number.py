"""Accounts checked by whichever instance their number falls to: member number and modulo.

Each instance knows its own number and how many there are, and needs nothing else to know its part of any list of
numbers.  One of them crashes; when its session has ended, the others have new numbers and its part.

    python topology_examples/12_member_number.py
"""

from streams import EmbeddedBroker
from streams.core.clock import VirtualClock
from streams.group import MemberNumber

ACCOUNTS = range(100, 112)


def main() -> None:
    """Share out accounts among three instances, then among the two that are left."""
    clock = VirtualClock()
    with EmbeddedBroker(clock=clock) as broker:
        instances = {
            name: MemberNumber(broker, "audit", client_id=name, clock=clock) for name in ("anna", "ben", "cleo")
        }

        def report(what: str) -> None:
            for _ in range(16):
                clock.advance(1_000)
                for instance in instances.values():
                    instance.poll()
            print(what)
            for instance in sorted(instances.values(), key=lambda instance: instance.number or 0):
                mine = [str(account) for account in ACCOUNTS if instance.owns(account)]
                print(f"  {instance.number} of {instance.count}: {' '.join(mine)}")

        report("three instances")
        del instances["ben"]
        report("one has crashed")
        for instance in instances.values():
            instance.close()


if __name__ == "__main__":
    main()
