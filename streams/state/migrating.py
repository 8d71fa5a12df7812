"""Conversion of changelog records to the last version of the values of a store.

Between the changelog or a snapshot, whose records have versions, and a store, whose values all have the last one.
Changelogs are not rewritten: each restore converts the records of earlier versions, each of them once.  Imports only
``core`` and ``state.specs``.
"""

from streams.core.blocks.records import Block
from streams.core.errors import StoreError
from streams.core.migrations import FIRST_VERSION, VERSION_HEADER, converted, version_of
from streams.state.specs import StoreSpec


def at_last_version(spec: StoreSpec, block: Block, version: int = FIRST_VERSION) -> Block:
    """Return changelog records with values of the last version; ``version`` is that of records without a header.

    Raises:
        StoreError: a value has an unknown version, or cannot be converted.
    """
    newest = version_of(spec.migrations)
    versions = [version] * len(block)
    for index, headers in enumerate(block.headers or ()):
        for name, content in headers:
            if name == VERSION_HEADER and content is not None:
                versions[index] = int(content)
    if all(written == newest for written in versions):
        return block
    values = list(block.values)
    for index, written in enumerate(versions):
        data = values[index]
        if data is None or written == newest:
            continue
        try:
            values[index] = converted(spec.migrations, data, written, spec.value_serde)
        except StoreError as error:
            raise StoreError(
                f"store {spec.name!r}: changelog offset {block.offsets[index]}, key {block.keys[index]!r}: {error}"
            ) from error
    return block.with_values(values)
