"""How many examples the property tests try, and which.

``make test`` runs the same few each time, ``make test-all`` all of them.  ``TEST_PROPERTIES=50`` runs fifty times as
many, other ones each time:

    TEST_PROPERTIES=50 python -m pytest tests/properties --timeout 3600
"""

import os

from hypothesis import HealthCheck, settings

_FACTOR = int(os.environ.get("TEST_PROPERTIES", "0"))

settings.register_profile(
    "properties",
    deadline=None,
    derandomize=not _FACTOR,
    database=None,
    print_blob=bool(_FACTOR),
    # A topology of several operators takes many draws; that is the point.
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)


def examples(count: int) -> settings:
    """Return the settings of a test that tries so many examples, or that many times the factor asked for.

    A profile that tries fewer than the usual hundred examples reduces the number in proportion.
    """
    count = count * _FACTOR if _FACTOR else max(1, count * settings().max_examples // 100)
    return settings(settings.get_profile("properties"), max_examples=count)
