"""Recognition of an application's internal topics by Kafka Streams' naming scheme.

``<application id>-<store>-changelog`` and ``<application id>-<name>-repartition`` may also belong to an
application with a longer id, for example to ``shop-eu`` instead of ``shop``.  If a group with the longer id exists,
the topic belongs to it.  Generated names are unambiguous, since no application id contains them.
``<application id>-progress`` exists only here: how far the tasks are that write to repartition topics.
Of the other packages, this module imports only ``core``.
"""

from collections.abc import Iterable

from attrs import frozen

from streams.core.topic import is_generated

_CHANGELOG = "-changelog"
_REPARTITION = ("-repartition", "-subscription-registration-topic", "-subscription-response-topic")
#: Suffix of lane topics, in which bounded runs keep the records of a topic separately for each writing task.
LANES = ".lanes"
#: Suffix of the group in which a bounded run commits the merge progress of lanes.
LANES_GROUP = "-lanes"


@frozen
class InternalTopic:
    """A topic created by an application.

    ``store`` is set for changelog topics, ``topic`` for those that the topology reads, neither for the progress topic.
    """

    name: str
    store: str | None = None
    topic: str | None = None

    @property
    def has_lanes_of_output(self) -> bool:
        """Whether it has the lanes of a topic that is not internal, from which bounded runs fill this topic."""
        return self.topic is not None and not self.topic.endswith(_REPARTITION)


def progress_topic(application_id: str) -> str:
    """Return the name of the topic to which the threads of an application write how far their tasks are."""
    return f"{application_id}-progress"


def internal_topics(application_id: str, topics: Iterable[str], groups: Iterable[str]) -> list[InternalTopic]:
    """Return an application's internal topics among ``topics``; ``groups`` are the group ids of the cluster.

    >>> names = ["shop-sums-changelog", "shop-eu-sums-changelog", "orders"]
    >>> [topic.store for topic in internal_topics("shop", names, ["shop", "shop-eu"])]
    ['sums']
    """
    prefix = f"{application_id}-"
    longer = tuple(
        f"{group}-" for group in groups if group.startswith(prefix) and group != application_id + LANES_GROUP
    )
    internal = []
    for name in sorted(topics):
        rest = name.removeprefix(prefix)
        if name == progress_topic(application_id):
            internal.append(InternalTopic(name))
            continue
        if rest == name or (name.startswith(longer) and not is_generated(rest)):
            continue
        # Lanes are internal, also those of topics that are not.
        topic = rest.removesuffix(LANES)
        if rest.endswith(_CHANGELOG):
            internal.append(InternalTopic(name, store=rest.removesuffix(_CHANGELOG)))
        elif topic != rest or topic.endswith(_REPARTITION):
            internal.append(InternalTopic(name, topic=topic))
    return internal
