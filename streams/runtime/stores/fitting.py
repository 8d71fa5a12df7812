"""Checks that existing stores are compatible with the current topology.

The folder of a store records its own layout.  A changelog has the format of Kafka Streams, which does not identify
types; the types are recorded in the metadata of committed offsets.  The module imports only ``core`` and ``state`` from
outside ``runtime``.
"""

from collections.abc import Mapping

from streams.core.blocks.records import TaskId, TopicPartition
from streams.core.errors import StoreFormatError
from streams.runtime.stores.restore import changelog_position
from streams.state import Content, Store, advice


def misfit(task_id: TaskId, store: Store) -> str | None:
    """Return the reason why an opened store must be restored from its changelog, or None if it can be used as it is.

    Raises:
        StoreFormatError: the store's content has an unknown or incompatible format, or must be restored but has no
            changelog.
    """
    stored = store.found_format
    expected = store.own_format()
    where = f"store {store.spec.name!r} of task {task_id}"
    if stored is None:
        if store.is_empty:
            return None
        raise StoreFormatError(
            f"{where} has entries, but no format recorded by this release of streams: another program or release "
            f"has written them; delete the folder {task_id}/{store.spec.name} of the state directory: the store is "
            "restored from its changelog"
        )
    differences = stored.content.differences(expected.content, may_convert=stored.version < expected.version)
    fields = stored.field_difference(expected) if stored.version == expected.version else None
    if not differences and not fields and stored.has_layout_of(expected) and stored.version == expected.version:
        return None
    if store.is_empty and not changelog_position(store):
        return "another version of the topology left it empty"
    if fields:
        advised = expected.advice_of_fields(store.spec.name)
        raise StoreFormatError(f"{where} has values of another version of their class: {fields}; {advised}")
    if stored.version > expected.version:
        raise StoreFormatError(
            f"{where} has values of version {stored.version}, but the topology has version {expected.version}; restore "
            "the migrations, or the topology that wrote them"
        )
    if differences:
        raise StoreFormatError(f"{where} {advice(differences)}")
    if stored.version < expected.version:
        why = f"its values have version {stored.version}, and are converted to version {expected.version}"
    else:
        why = stored.layout_difference(expected)
    if not expected.is_logged:
        raise StoreFormatError(
            f"{where} cannot be read: {why}, and no changelog has its content; restore the previous declaration, or "
            f"delete the folder {task_id}/{store.spec.name} of the state directory, so that the store starts empty"
        )
    return why


def loss_of_fields(store: Store) -> str | None:
    """Return a warning if the class of a store's values has lost fields whose content the store still has."""
    stored = store.found_format
    expected = store.own_format()
    if stored is None or stored.version != expected.version or store.is_empty:
        return None
    names = stored.lost_fields(expected)
    if not names:
        return None
    listed = ", ".join(map(repr, names))
    step = f"{expected.version}, {expected.version + 1}"
    return (
        f"store {store.spec.name!r}: the class of its values has no field {listed} any more: its content in the "
        "entries is ignored, and gone after the next change of each; to keep it, give the class the field again, or "
        f"convert the values with @migrate({store.spec.name!r}, {step})"
    )


def _differences(content: Content, store: Store) -> list[str]:
    # Each record has the version of its value, which is checked when it is converted.
    return content.differences(Content.of(store.spec), may_convert=bool(store.spec.migrations))


def check_changelogs(
    task_id: TaskId,
    stores: Mapping[str, Store],
    changelogs: Mapping[str, TopicPartition],
    recorded: Mapping[str, Content],
) -> dict[str, str]:
    """Return the stores whose changelogs are incompatible with this topology, each with an error message.

    ``recorded`` contains the changelog formats from the last commit of the task.
    """
    errors = {}
    for name, partition in changelogs.items():
        content = recorded.get(name)
        differences = [] if content is None else _differences(content, stores[name])
        if differences:
            errors[name] = f"changelog {partition} of store {name!r} of task {task_id} {advice(differences)}"
    return errors
