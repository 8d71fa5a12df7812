"""A nightly batch that three instances could run, and one does: leader election.

All three stand for election.  Only the leader runs the batch, and asks before each step whether it still leads;
when it is stopped in the middle, the next leader goes on where it left off.

    python topology_examples/10_leader_election.py
"""

from streams import EmbeddedBroker
from streams.core.clock import VirtualClock
from streams.group import LeaderElection

STEPS = ("close the books", "make the statement", "send it")


def main() -> None:
    """Run the batch on whichever instance leads."""
    clock = VirtualClock()
    done: list[str] = []
    with EmbeddedBroker(clock=clock) as broker:
        instances = {
            name: LeaderElection(broker, "nightly-batch", client_id=name, clock=clock)
            for name in ("anna", "ben", "cleo")
        }
        while len(done) < len(STEPS):
            # A second of virtual time; in a program each instance polls, or is started in a thread of its own.
            clock.advance(1_000)
            for name, election in list(instances.items()):
                election.poll()
                if election.is_leader and len(done) < len(STEPS):
                    print(f"{name}: {STEPS[len(done)]}")
                    done.append(name)
                    if len(done) == 1:
                        print(f"{name} is stopped")
                        instances.pop(name).close()
        for election in instances.values():
            election.close()
    print(f"{len(STEPS)} steps, each done once, by {len(set(done))} instances in turn")


if __name__ == "__main__":
    main()
