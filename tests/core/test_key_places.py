"""Misplaced keys are counted, and the partitioner that explains them is derived from them."""

from collections.abc import Callable, Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.core.blocks.key_places import KeyPlaces, MisplacedKey, placements
from streams.core.blocks.partitioning import KEY_HASHES, partition_for

BY_NAME = {found.name: found.of for found in KEY_HASHES}


def keys(count: int) -> list[bytes]:
    return [f"customer-{number}".encode() for number in range(count)]


def sampled(placed: Iterable[tuple[bytes | None, int]], partitions: int, key_suffix: int = 0) -> KeyPlaces:
    """Sample keys, each with the partition that it is in."""
    places = KeyPlaces("orders", partitions, key_suffix)
    for offset, (key, partition) in enumerate(placed):
        places.look(partition, [key], [offset], {partition})
    return places


def by(name: str, partitions: int) -> Callable[[bytes], int]:
    return lambda key: BY_NAME[name](key) % partitions


@pytest.mark.parametrize("name", ["CRC32", "FNV-1a", "FNV-1a without its sign"])
def test_partitioner_of_another_client_is_named(name: str) -> None:
    place = by(name, 12)

    places = sampled([(key, place(key)) for key in keys(60)], 12)

    assert places.misplaced == sum(place(key) != partition_for(key, 12) for key in keys(60))
    assert places.reason == name
    assert places.explanation.startswith(f"{name} (")


@pytest.mark.parametrize(("before", "now"), [(1, 2), (1, 4), (2, 4), (4, 6), (4, 128)])
def test_earlier_partition_count_of_a_topic_that_grew_is_named(before: int, now: int) -> None:
    old = [(key, partition_for(key, before)) for key in keys(200)]
    new = [(key, partition_for(key, now)) for key in keys(200)]

    places = sampled([*old, *new], now)

    assert places.reason == f"murmur2 over {before} partition{'s' * (before > 1)}"
    assert "the topic had fewer partitions when they were written" in places.explanation


def test_keys_in_any_partition_have_no_partitioner() -> None:
    places = sampled([(key, number % 4) for number, key in enumerate(keys(60))], 4)

    assert places.reason == "none"
    assert "sticky, round robin" in places.explanation


def test_some_stray_records_do_not_hide_the_partitioner_of_the_others() -> None:
    place = by("CRC32", 8)
    placed = [(key, place(key)) for key in keys(60)]

    places = sampled([(b"stray", (partition_for(b"stray", 8) + 1) % 8), *placed], 8)

    assert places.reason == "CRC32"


def test_few_keys_do_not_tell_the_partitioner() -> None:
    stray = next(key for key in keys(100) if by("CRC32", 2)(key) != partition_for(key, 2))

    places = sampled([(stray, by("CRC32", 2)(stray))], 2)

    assert places.first == MisplacedKey(stray, by("CRC32", 2)(stray), 0, partition_for(stray, 2))
    assert places.reason == "unclear"
    assert "CRC32" in places.explanation


def test_null_keys_and_windows_of_keys_have_no_influence() -> None:
    windowed = [(key + bytes(8), partition_for(key, 4)) for key in keys(40)]

    places = sampled([*windowed, *((None, number) for number in range(4))], 4, key_suffix=8)

    assert (places.sampled, places.misplaced) == (40, 0)


def test_key_may_be_in_any_partition_that_is_read_with_its_own() -> None:
    """A topic that grew from 2 to 4: the partition groups stay 2, so no key has left its task."""
    places = KeyPlaces("orders", 4)
    for offset, key in enumerate(keys(100)):
        partition = partition_for(key, 2)
        places.look(partition, [key], [offset], {partition, partition + 2})

    assert (places.sampled, places.misplaced) == (100, 0)


@given(st.lists(st.binary(max_size=20), max_size=50), st.integers(1, 40))
def test_keys_of_the_default_partitioner_are_never_misplaced(given_keys: list[bytes], partitions: int) -> None:
    places = sampled([(key, partition_for(key, partitions)) for key in given_keys], partitions)

    assert (places.sampled, places.misplaced, places.first) == (len(given_keys), 0, None)


@given(
    st.lists(st.binary(min_size=1, max_size=20), unique=True, max_size=50),
    st.integers(2, 40),
    st.sampled_from(KEY_HASHES[1:]),
)
def test_true_partitioner_is_among_those_that_explain(given_keys: list[bytes], partitions: int, hash_: object) -> None:
    of = hash_.of  # type: ignore[attr-defined]
    misplaced = {
        key: of(key) % partitions for key in given_keys if of(key) % partitions != partition_for(key, partitions)
    }

    found = placements(misplaced, partitions)

    assert not misplaced or any(item.hash is hash_ and item.partitions == partitions for item in found)
