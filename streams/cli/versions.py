"""The version of the installed package."""

from importlib.metadata import PackageNotFoundError, version


def installed_version() -> str | None:
    """Return the version, None if the program runs from a source tree that is not installed."""
    try:
        return version("streams")
    except PackageNotFoundError:
        return None
