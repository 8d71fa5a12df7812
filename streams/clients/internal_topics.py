"""Which topics are internal ones of an application: told by their names, as Kafka Streams gives them.

``<application id>-<store>-changelog`` and ``<application id>-<name>-repartition`` may also be those of an
application whose id is longer: of ``shop-eu`` rather than ``shop``.  A group with that longer id decides, but
for names that are generated, which no application id begins with.  Pure.
"""

import re
from collections.abc import Iterable

from attrs import frozen

_CHANGELOG = "-changelog"
_REPARTITION = ("-repartition", "-subscription-registration-topic", "-subscription-response-topic")
#: How bounded runs keep a topic: one part per writing task.
_LANES = ".lanes"
#: Group in which a bounded run notes how far lanes are merged.
LANES_GROUP = "-lanes"
_GENERATED = re.compile(r"K(?:STREAM|TABLE)-.*\d{10}")


@frozen
class InternalTopic:
    """A topic that an application has made; ``store`` is named of a changelog, ``topic`` of all others."""

    name: str
    store: str | None = None
    topic: str | None = None


def is_generated(name: str) -> bool:
    """Whether the name of a store or node was made up by the DSL.

    >>> is_generated("KSTREAM-AGGREGATE-STATE-STORE-0000000003"), is_generated("totals")
    (True, False)
    """
    return _GENERATED.match(name) is not None


def internal_topics(application_id: str, topics: Iterable[str], groups: Iterable[str]) -> list[InternalTopic]:
    """Return the internal topics of an application among all of a cluster; ``groups`` are the ids of its groups.

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
