"""The membership policy of consumers: eager and cooperative rebalancing.

Eager members revoke all partitions before they join.  Cooperative members keep them, revoke the partitions
that the new assignment moves, and rejoin so that these can be assigned (KIP-429).
This module performs no I/O.
"""

from collections.abc import Mapping, Sequence

from attrs import frozen

from streams.core.blocks.records import TopicPartition
from streams.core.errors import ConfigError
from streams.group.assignment.assignors import Assignor, RebalanceProtocol
from streams.group.assignment.subscriptions import (
    CONSUMER_PROTOCOL_TYPE,
    Assignment,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from streams.protocol.group_messages import JoinGroupMember


@frozen
class Revoke:
    """Revoke ``partitions``, in order; the member owns them until the revocation is complete."""

    partitions: tuple[TopicPartition, ...]


@frozen
class Assign:
    """The action to adopt a new assignment: ``partitions`` is all of it, ``added`` those not owned before."""

    partitions: tuple[TopicPartition, ...]
    added: tuple[TopicPartition, ...]


@frozen
class Lose:
    """The ``partitions`` are lost; other members may already own them."""

    partitions: tuple[TopicPartition, ...]


class ConsumerMembership:
    """The subscription and assignment of one consumer in its group."""

    protocol_type = CONSUMER_PROTOCOL_TYPE

    def __init__(
        self, assignors: Sequence[Assignor], group_instance_id: str | None = None, rack_id: str | None = None
    ) -> None:
        if not assignors:
            raise ConfigError("a consumer in a group needs at least one assignor; pass assignors=[RangeAssignor()]")
        self._assignors = {assignor.name: assignor for assignor in assignors}
        self._group_instance_id = group_instance_id
        self._rack_id = rack_id
        common = set(RebalanceProtocol).intersection(*(assignor.protocols for assignor in assignors))
        if not common:
            names = ", ".join(self._assignors)
            raise ConfigError(
                f"assignors {names}: no rebalance protocol that all support; list eager and cooperative ones apart"
            )
        self.rebalance_protocol = (
            RebalanceProtocol.COOPERATIVE if RebalanceProtocol.COOPERATIVE in common else RebalanceProtocol.EAGER
        )
        self.topics: tuple[str, ...] = ()
        #: What the coordinator matches with the names of topics (KIP-848), or "".
        self.topic_regex = ""
        self.owned: tuple[TopicPartition, ...] = ()
        self._owned_generation = -1
        self._joined_topics: frozenset[str] = frozenset()

    # --- the policy of a Member -------------------------------------------------------

    def prepare_join(self) -> list[object]:
        """Revoke all partitions in eager mode, or in cooperative mode only those of topics no longer subscribed to."""
        if self.rebalance_protocol is RebalanceProtocol.EAGER:
            return self.leaving()
        # Keep partitions of topics that were never subscribed to, since an assignor may assign them.
        dropped = self._joined_topics.difference(self.topics)
        revoked = tuple(partition for partition in self.owned if partition.topic in dropped)
        self.owned = tuple(partition for partition in self.owned if partition.topic not in dropped)
        return [Revoke(revoked)] if revoked else []

    def metadata(self) -> Sequence[tuple[str, bytes]]:
        """Return the subscription for each assignor, with the assignor's user data."""
        self._joined_topics = frozenset(self.topics)
        return tuple(
            (
                name,
                encode_subscription(
                    Subscription(
                        self.topics,
                        self.owned,
                        self._owned_generation,
                        assignor.subscription_user_data(),
                        rack_id=self._rack_id,
                    )
                ),
            )
            for name, assignor in self._assignors.items()
        )

    def assigned(self, protocol_name: str, generation_id: int, assignment: bytes) -> tuple[list[object], bool]:
        """Apply an assignment; return the events, and True if a cooperative member must rejoin after a revocation."""
        decoded = decode_assignment(assignment)
        self._assignors[protocol_name].on_assignment(decoded)
        before = set(self.owned)
        now = set(decoded.partitions)
        revoked = tuple(partition for partition in self.owned if partition not in now)
        added = tuple(partition for partition in decoded.partitions if partition not in before)
        self.owned = tuple(decoded.partitions)
        self._owned_generation = generation_id
        events: list[object] = [Revoke(revoked)] if revoked else []
        events.append(Assign(self.owned, added))
        return events, bool(revoked) and self.rebalance_protocol is RebalanceProtocol.COOPERATIVE

    def lost(self) -> list[object]:
        """Clear the assignment, because the partitions are lost."""
        owned = self.owned
        self.owned = ()
        self._owned_generation = -1
        return [Lose(owned)] if owned else []

    def leaving(self) -> list[object]:
        """Revoke all partitions, because the member is leaving the group."""
        owned = self.owned
        self.owned = ()
        return [Revoke(owned)] if owned else []

    # --- leader -----------------------------------------------------------------------

    def wanted_topics(self, members: Sequence[JoinGroupMember]) -> set[str]:
        """Return the topics that any member subscribes to."""
        return {topic for member in members for topic in decode_subscription(member.metadata).topics}

    def assign(
        self, protocol_name: str, members: Sequence[JoinGroupMember], partitions_per_topic: Mapping[str, int]
    ) -> dict[str, bytes]:
        """Run the selected assignor; return each member's encoded assignment."""
        subscriptions = {
            member.member_id: decode_subscription(member.metadata, member.group_instance_id) for member in members
        }
        result = self._assignors[protocol_name].assign(partitions_per_topic, subscriptions)
        return {member: encode_assignment(result.get(member, Assignment())) for member in subscriptions}
