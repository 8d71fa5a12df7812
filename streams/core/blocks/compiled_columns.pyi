from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

KINDS: Mapping[type, int]
OPERATIONS: Mapping[str, int]

class JsonColumns:
    def __init__(self, names: Sequence[str], kinds: Sequence[int], columns: Sequence[int]) -> None: ...
    def set_names(self, names: Iterable[str]) -> bool: ...
    def slice(self, rows: list[Any]) -> list[array[int]] | None: ...

def key_codes(keys: list[Any], codes: dict[Any, int], new_code: Callable[[Any], int]) -> array[int]: ...

class ColumnFold:
    stream_time_ms: int
    late: list[tuple[int, int]]
    def __init__(
        self,
        code: array[int],
        constants: array[int],
        kinds: Sequence[type],
        places: tuple[int, int, int, int, int],
        registers_size: int,
        windows: tuple[int, int, int],
    ) -> None: ...
    def run(
        self,
        keys: array[int],
        times: array[int],
        columns: list[array[int]],
        start: int,
        stop: int,
        stream_time_ms: int,
        end_ms: int,
        fetch: Callable[[int, int], tuple[tuple[Any, ...] | None, int | None] | None],
        updates: list[tuple[int, int, int, int, tuple[Any, ...]]] | None,
    ) -> int: ...
    def changes(self) -> list[tuple[int, int, int, tuple[Any, ...]]]: ...
    def forget(self) -> None: ...

def mapped(
    code: array[int],
    constants: array[int],
    registers_size: int,
    column_at: int,
    result_at: int,
    columns: list[array[int]],
) -> array[int] | None: ...
