"""How many examples the property tests try, and which.

``make test`` and ``make test-rest`` try the same few each time.  ``make test-all SEEDS=50`` tries fifty times as many,
other ones each time; of these tests alone:

    python -m pytest tests/properties --scope all --seeds 50 --timeout 3600
"""

from hypothesis import HealthCheck, settings

#: How many of a hundred examples to try, as ``tests/conftest.py`` says.
_OF_A_HUNDRED = settings().max_examples
_IS_SEARCH = _OF_A_HUNDRED > 100

settings.register_profile(
    "properties",
    deadline=None,
    derandomize=not _IS_SEARCH,
    database=None,
    print_blob=_IS_SEARCH,
    # A topology of several operators takes many draws; that is the point.
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)


def examples(count: int) -> settings:
    """Return the settings of a test that tries so many examples where a property tries a hundred."""
    return settings(settings.get_profile("properties"), max_examples=max(1, count * _OF_A_HUNDRED // 100))
