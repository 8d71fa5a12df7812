"""Stores that processors declare."""

from datetime import timedelta

import pytest

from streams import TopologyError, key_value_store, versioned_store, window_store

SECOND = timedelta(seconds=1)


def test_windows_longer_than_they_are_retained_are_refused():
    assert window_store(str, int, "seen", size=SECOND, retention=SECOND).spec().retention_ms == 1000

    with pytest.raises(TopologyError, match="'seen': retention 0:00:01 is shorter than its windows of 0:00:02"):
        window_store(str, int, "seen", size=2 * SECOND, retention=SECOND)


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ("persistent", "has no option persistent=; use is_persistent="),
        ("logging", "has no option logging=; use has_changelog="),
        ("has_cachin", "has no option has_cachin=; use has_caching="),
        ("colour", "has no option colour=; there are: .*has_changelog"),
    ],
)
def test_unknown_options_are_refused_with_the_store_and_the_option_that_is_meant(option, told):
    """Where the store is declared; tables and aggregates name some of their options differently."""
    with pytest.raises(TopologyError, match=f"^store 'seen' of a processor {told}"):
        key_value_store(str, int, "seen", **{option: False})
    with pytest.raises(TopologyError, match=f"^a store of a processor {told}"):
        key_value_store(str, int, **{option: False})


def test_cache_before_versions_is_refused():
    """As in Kafka Streams (KIP-889): it would let only the last version of a commit through."""
    with pytest.raises(TopologyError, match="'prices' cannot have a cache"):
        versioned_store(str, int, "prices", history=SECOND, has_caching=True)
