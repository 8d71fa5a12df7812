"""UUIDs as Kafka writes them.  This module imports no other module of the package."""

from base64 import urlsafe_b64encode


def uuid_text(uuid: bytes) -> str:
    """Return a UUID in Kafka's format: base64 for URLs, without padding.

    >>> uuid_text(bytes(16))
    'AAAAAAAAAAAAAAAAAAAAAA'
    """
    return urlsafe_b64encode(uuid).decode().rstrip("=")
