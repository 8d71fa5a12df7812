"""Migrations of a topology: each is added to its store.

Imports ``core`` and ``topology`` only.
"""

from collections.abc import Iterable

from attrs import evolve

from streams.core.errors import TopologyError
from streams.core.migrations import Migration, chained
from streams.core.serdes.serdes import PinnedSerde
from streams.topology import Topology


def add_migrations(topology: Topology, migrations: Iterable[Migration]) -> None:
    """Add migrations to the stores of a topology.

    Raises:
        TopologyError: there is no such store, it has no changelog of its own or no declared type, or migrations do not
            lead from each version to the next.
    """
    by_store: dict[str, list[Migration]] = {}
    for item in migrations:
        by_store.setdefault(item.store, []).append(item)
    for name, items in by_store.items():
        if reason := _refusal(topology, name):
            raise TopologyError(f"{items[0].shown} of store {name!r}: {reason}")
        topology.stores[name] = evolve(topology.stores[name], migrations=chained(items))


def _refusal(topology: Topology, name: str) -> str | None:
    if name in topology.global_stores:
        return "a global store has the entries of its topic; convert them where they are read"
    spec = topology.stores.get(name)
    if spec is None:
        return f"there is no such store; there are {', '.join(sorted(topology.stores)) or 'none'}"
    if name in topology.source_changelogs:
        return f"its changelog is the topic {topology.source_changelogs[name]!r}; convert values where they are read"
    if not spec.has_changelog:
        return "it has no changelog, from which its entries would be converted; give it one, or another name"
    if isinstance(spec.value_serde, PinnedSerde):
        return "the type of its values is not declared; give it with value="
    return None
