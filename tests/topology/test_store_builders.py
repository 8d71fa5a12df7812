"""Stores that processors declare."""

from datetime import timedelta

import pytest

from streams import TopologyError, versioned_store, window_store

SECOND = timedelta(seconds=1)


def test_windows_longer_than_they_are_retained_are_refused():
    assert window_store(str, int, "seen", size=SECOND, retention=SECOND).spec().retention_ms == 1000

    with pytest.raises(TopologyError, match="'seen': retention 0:00:01 is shorter than its windows of 0:00:02"):
        window_store(str, int, "seen", size=2 * SECOND, retention=SECOND)


def test_cache_before_versions_is_refused():
    """As in Kafka Streams (KIP-889): it would let only the last version of a commit through."""
    with pytest.raises(TopologyError, match="'prices' cannot have a cache"):
        versioned_store(str, int, "prices", history=SECOND, has_caching=True)
