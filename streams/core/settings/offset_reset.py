"""Where reading begins in a partition without a position: the policies of Kafka's ``auto.offset.reset``.

``earliest``, ``latest``, ``none`` (an error), or ``by_duration:`` with a duration in ISO 8601, such as
``by_duration:PT1H`` (KIP-1106).  Pure; of the other modules, this one imports only ``core.errors``.
"""

import re
from datetime import timedelta
from typing import Any, Final, Literal, TypeAlias

from streams.core.errors import TopologyError

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
NONE: Final = "none"
_BY_DURATION: Final = "by_duration:"
_DURATION: Final = re.compile(
    _BY_DURATION + r"P(?:(\d+)D)?(?:T(?=\d)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", re.ASCII
)

#: What a source may have; a timedelta goes back from now, and begins with the first record that is not older.
OffsetReset: TypeAlias = Literal["earliest", "latest", "none"] | timedelta


def duration_ms(policy: str) -> int | None:
    """Return the milliseconds of ``by_duration:PnDTnHnMn.nS`` (ISO 8601), or None if it is not of this form."""
    match = _DURATION.fullmatch(policy)
    if match is None or not any(match.groups()):
        return None
    days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return int((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000)


def is_duration(policy: str) -> bool:
    """Return whether a policy goes back by a duration."""
    return duration_ms(policy) is not None


def beginning(policy: str) -> str:
    """Return in words where reading begins in a partition without a committed offset."""
    if is_duration(policy):
        return f"at the first record that is not older than {policy.removeprefix(_BY_DURATION)}"
    words = {EARLIEST: "at its beginning", LATEST: "at its end: what is there already is not read"}
    return words.get(policy, "nowhere: it fails")


def policy_of(policy: Any, what: str) -> str | None:
    """Return the policy that a source declares, in Kafka's form; None if it declares none.

    Raises:
        TopologyError: it is neither one of the words nor a timedelta of at least 0.
    """
    if policy is None:
        return None
    if isinstance(policy, str) and (policy in (EARLIEST, LATEST, NONE) or is_duration(policy)):
        return policy
    if isinstance(policy, timedelta) and policy >= timedelta(0):
        seconds, milliseconds = divmod(policy // timedelta(milliseconds=1), 1000)
        return f"{_BY_DURATION}PT{seconds}.{milliseconds:03}S"
    raise TopologyError(
        f"{what}: offset_reset must be 'earliest', 'latest', 'none', or a timedelta back from now, not {policy!r}"
    )
