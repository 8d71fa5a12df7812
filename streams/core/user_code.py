"""Which line of a traceback is the user's: neither ours, nor generated, nor of a library."""

import sysconfig
import traceback
from pathlib import Path
from types import TracebackType

#: Where code is that is not the user's: this package, libraries, Python itself.
_NOT_THE_USERS = (
    str(Path(__file__).parent.parent),
    *(sysconfig.get_path(kind) for kind in ("purelib", "platlib", "stdlib", "platstdlib")),
)


def last_frame_outside(trace: TracebackType | None) -> traceback.FrameSummary | None:
    """Return the innermost frame that is the user's, None if there is none."""
    for frame in reversed(traceback.extract_tb(trace)):
        if not frame.filename.startswith(("<", *_NOT_THE_USERS)):
            return frame
    return None


def place_in_user_code(error: BaseException) -> str:
    """Return where in the user's code an error came up: file, line, function and text; empty if nowhere."""
    frame = last_frame_outside(error.__traceback__)
    if frame is None:
        return ""
    text = f": {frame.line}" if frame.line else ""
    return f"{frame.filename}:{frame.lineno}, {frame.name}{text}"
