"""Where this package was installed from, for what names it in a command or in a project's dependencies."""

import json
from functools import cache


@cache
def installed_version() -> str | None:
    """Return the version, None if the program runs from a source tree that is not installed."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("streams")
    except PackageNotFoundError:
        return None


def pip_install(extra: str) -> str:
    """Return the command that adds an extra to this installation, from the place that it came from."""
    # Not at the top: it loads clients of HTTP.
    from urllib.request import url2pathname

    url, details = _origin()
    if not url:
        return f"pip install 'streams[{extra}]'"
    if not url.startswith("file://") or "vcs_info" in details:
        return f"pip install '{requirement(extra)}'"
    editable = "--editable " if details.get("dir_info", {}).get("editable") else ""
    return f"pip install {editable}'{url2pathname(url.removeprefix('file://'))}[{extra}]'"


def requirement(extra: str = "") -> str:
    """Return this package, with an extra, as a dependency: of an index the version, else the place."""
    url, details = _origin()
    name = f"streams[{extra}]" if extra else "streams"
    if not url:
        return f"{name}>={installed_version() or 0}"
    vcs = details.get("vcs_info")
    place = f"{vcs['vcs']}+{url}@{vcs['commit_id']}" if vcs else url
    folder = details.get("subdirectory")
    return f"{name} @ {place}" + (f"#subdirectory={folder}" if folder else "")


@cache
def _origin() -> tuple[str, dict[str, dict[str, str]]]:
    """The URL that was installed, "" if it was a name of an index, and what else PEP 610 notes of it."""
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        noted = distribution("streams").read_text("direct_url.json")
    except PackageNotFoundError:
        noted = None
    details = json.loads(noted) if noted else {}
    return details.get("url", ""), details
