"""Snapshots of outputs: the records of topics as lines of JSON, in a file that a later run is compared with.

Of the other packages, this module imports only ``core`` and ``files``.
"""

import difflib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from streams.core.serdes.serdes import canonical_json
from streams.core.topic import Topic, typed_topic
from streams.testing.driver import TopologyTestDriver
from streams.values import form_of

#: Lines of a difference that are shown.
_LINES = 40


class OutputSnapshot:
    """Compares outputs with snapshot files of one test; returned by the pytest fixture ``output_snapshot``.

    The first comparison of a test uses the file ``folder/TEST.jsonl``, later ones ``TEST.2.jsonl`` and so on.
    With ``updates``, files are written instead, and ``written`` is called with the path of each one that changes.
    """

    def __init__(
        self, folder: Path, test: str, *, updates: bool = False, written: Callable[[Path], object] = lambda path: None
    ) -> None:
        self._folder = folder
        self._stem = re.sub(r"[^\w.=-]+", "_", test).strip("_")
        self._updates = updates
        self._written = written
        self._checks = 0

    def check(self, driver: TopologyTestDriver, *topics: Topic[Any, Any]) -> None:
        """Read the records written to the topics since they were last read, and compare them with the file.

        Raises:
            AssertionError: the records differ, or there is no file; the message shows the lines that differ.
            TopologyError: a topic is a name.
            UnknownTopicError: the topology neither writes nor reads a topic.
        """
        self._checks += 1
        number = f".{self._checks}" if self._checks > 1 else ""
        path = self._folder / f"{self._stem}{number}.jsonl"
        lines = [line for topic in topics for line in _lines(driver, typed_topic(topic, "check()"))]
        text = "".join(f"{line}\n" for line in lines)
        old = path.read_text(encoding="utf-8") if path.exists() else None
        if old == text:
            return
        if self._updates:
            self._folder.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            self._written(path)
        elif old is None:
            raise AssertionError(f"there is no {path}; run pytest with --update-outputs to write it, and read it")
        else:
            differences = [*difflib.unified_diff(old.splitlines(), lines, path.name, "read now", lineterm="", n=1)]
            more = f"\n... {len(differences) - _LINES} more lines" if len(differences) > _LINES else ""
            raise AssertionError(
                f"outputs differ from {path}; if they are right, run pytest with --update-outputs\n"
                + "\n".join(differences[:_LINES])
                + more
            )


def _lines(driver: TopologyTestDriver, topic: Topic[Any, Any]) -> Iterator[str]:
    key_of = form_of(topic.key_serde).to_json
    value_of = form_of(topic.value_serde).to_json
    for record in driver.read_bytes(topic):
        headers = [
            [name, None if data is None else data.decode(errors="backslashreplace")] for name, data in record.headers
        ]
        parts = {
            "topic": canonical_json(topic.name),
            "key": key_of(record.key),
            "value": value_of(record.value),
            "timestamp": canonical_json(record.timestamp_ms),
            **({"headers": canonical_json(headers)} if headers else {}),
        }
        yield "{" + ", ".join(f'"{name}": {data.decode()}' for name, data in parts.items()) + "}"
