"""What is said of a write that failed because a disk is full, and of no other."""

import errno
import re
from pathlib import Path

import pytest

from streams.core.folders import full_disk, naming


def caused(error: BaseException, cause: BaseException) -> BaseException:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "path", "needed", "text"),
    [
        (OSError(errno.ENOSPC, "x", "/no/file"), "/a", None, r"disk full: /no/file \([\d,]+ bytes are free\):"),
        (OSError(errno.EDQUOT, "x"), Path("/a"), 5_000, r"disk full: /a \([\d,]+ bytes are free, 5,000 are needed\)"),
        (OSError(errno.ENOSPC, "x"), None, None, r"a disk is full: make room on it, then retry$"),
        (Exception("IO error: No space left on device: While appending"), "/a", None, r"disk full: /a \("),
        (caused(ValueError("x"), OSError(errno.ENOSPC, "x", "/b")), None, None, r"disk full: /b \("),
    ],
)  # fmt: skip
def test_a_full_disk_is_said_with_place_room_and_remedy(error, path, needed, text):
    message = full_disk(error, path, needed)

    assert message is not None
    assert re.match(text, message)


@pytest.mark.parametrize("error", [OSError(errno.EACCES, "x"), ValueError("x"), None])
def test_other_errors_are_none(error):
    assert full_disk(error, "/a") is None


def test_a_write_names_its_file(tmp_path):
    with pytest.raises(OSError, match=r"full: '.*/state'"), naming(tmp_path / "state"):
        raise OSError(errno.ENOSPC, "full")
    with pytest.raises(OSError, match="full") as caught, naming(tmp_path / "state"):
        raise OSError(errno.ENOSPC, "full", "first")

    assert caught.value.filename == "first"
