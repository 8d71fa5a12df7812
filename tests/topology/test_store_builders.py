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
        ("persistnt", "unknown option 'persistnt' of store 'seen'; did you mean 'persistent'"),
        ("is_persistent", "unknown option 'is_persistent' of store 'seen'; did you mean 'persistent'"),
        ("colour", "unknown option 'colour' of store 'seen'; there are caching, changelog, logging, persistent"),
    ],
)
def test_unknown_options_are_refused_with_the_store_and_the_option_that_is_meant(option, told):
    """Where the store is declared; a store has the options of every other, whoever declares it."""
    with pytest.raises(TopologyError, match=f"^{told}"):
        key_value_store(str, int, "seen", **{option: False})
    with pytest.raises(TopologyError, match="of a store of a processor"):
        key_value_store(str, int, **{option: False})


@pytest.mark.parametrize(("option", "value"), [("persistent", 1), ("logging", "no"), ("changelog", "compact")])
def test_an_option_of_another_type_is_refused(option, value):
    with pytest.raises(TopologyError, match=f"{option}= of store 'seen' must be"):
        key_value_store(str, int, "seen", **{option: value})


def test_options_are_those_of_the_spec():
    spec = key_value_store(str, int, "seen", caching=False, logging=False, persistent=False).spec()
    assert (spec.has_caching, spec.has_changelog, spec.is_persistent) == (False, False, False)


def test_cache_before_versions_is_refused():
    """As in Kafka Streams (KIP-889): it would let only the last version of a commit through."""
    with pytest.raises(TopologyError, match="'prices' cannot have a cache"):
        versioned_store(str, int, "prices", history=SECOND, caching=True)
