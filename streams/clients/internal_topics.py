"""Recognition of an application's internal topics by Kafka Streams' naming scheme.

``<application id>-<store>-changelog`` and ``<application id>-<name>-repartition`` may also belong to an
application with a longer id, for example to ``shop-eu`` instead of ``shop``.  If a group with the longer id exists,
the topic belongs to it.  Generated names are unambiguous, since no application id contains them.  No I/O.
"""

import re
from collections.abc import Iterable

from attrs import frozen

_CHANGELOG = "-changelog"
_REPARTITION = ("-repartition", "-subscription-registration-topic", "-subscription-response-topic")
#: Suffix of lane topics, in which bounded runs keep the records of a topic separately for each writing task.
_LANES = ".lanes"
#: Suffix of the group in which a bounded run commits the merge progress of lanes.
LANES_GROUP = "-lanes"
_GENERATED = re.compile(r"K(?:STREAM|TABLE)-.*\d{10}")


@frozen
class InternalTopic:
    """A topic created by an application; ``store`` is set for changelogs, ``topic`` for all others."""

    name: str
    store: str | None = None
    topic: str | None = None


def is_generated(name: str) -> bool:
    """Whether the DSL generated the name of a store or node.

    >>> is_generated("KSTREAM-AGGREGATE-STATE-STORE-0000000003"), is_generated("totals")
    (True, False)
    """
    return _GENERATED.match(name) is not None


def internal_topics(application_id: str, topics: Iterable[str], groups: Iterable[str]) -> list[InternalTopic]:
    """Return an application's internal topics among ``topics``; ``groups`` are the group ids of the cluster.

    >>> names = ["shop-sums-changelog", "shop-eu-sums-changelog", "orders"]
    >>> [found.store for found in internal_topics("shop", names, ["shop", "shop-eu"])]
    ['sums']
    """
    prefix = f"{application_id}-"
    longer = tuple(
        f"{group}-" for group in groups if group.startswith(prefix) and group != application_id + LANES_GROUP
    )
    found = []
    for name in sorted(topics):
        rest = name.removeprefix(prefix)
        if rest == name or (name.startswith(longer) and not is_generated(rest)):
            continue
        topic = rest.removesuffix(_LANES)
        if rest.endswith(_CHANGELOG):
            found.append(InternalTopic(name, store=rest.removesuffix(_CHANGELOG)))
        elif topic.endswith(_REPARTITION):
            found.append(InternalTopic(name, topic=topic))
    return found
