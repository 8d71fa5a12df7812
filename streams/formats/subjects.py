"""Subject name strategies (Confluent): the names under which a registry has the schemas of a topic."""

from typing import Final, Literal, TypeAlias, get_args

from streams.core.errors import TopologyError

#: By topic (``orders-value``), by the record's full name (``shop.Order``), or by both (``orders-shop.Order``).
SubjectStrategy: TypeAlias = Literal["topic", "record", "topic-record"]
STRATEGIES: Final[tuple[SubjectStrategy, ...]] = get_args(SubjectStrategy)


def check_strategy(strategy: str) -> None:
    """Check the name of a strategy.

    Raises:
        TopologyError: no strategy has this name.
    """
    if strategy not in STRATEGIES:
        raise TopologyError(f"subject={strategy!r} is none of {', '.join(STRATEGIES)}")


def subject_of(strategy: SubjectStrategy, topic: str, side: str, record: str) -> str:
    """Return the subject for the keys or values (``side``) of a topic.

    >>> [subject_of(strategy, "orders", "value", "shop.Order") for strategy in STRATEGIES]
    ['orders-value', 'shop.Order', 'orders-shop.Order']
    """
    if strategy == "topic":
        return f"{topic}-{side}"
    return record if strategy == "record" else f"{topic}-{record}"
