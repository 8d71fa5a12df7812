"""Files as inputs and outputs of topics: JSON lines, whole records, CSV, text and Parquet.

``kinds`` tells a file's kind, ``lines`` and ``formats`` cut it into rows, ``forms`` turns keys and
values from and into JSON, ``reader`` makes records of rows and ``writer`` files of records.
Imports core only.
"""

from streams.files.kinds import STANDARD_OUTPUT, kind_of
from streams.files.reader import FileInput, OnBadRow, RowReader, open_input
from streams.files.writer import FileOutput, OutputError, open_output

__all__ = [
    "STANDARD_OUTPUT",
    "FileInput",
    "FileOutput",
    "OnBadRow",
    "OutputError",
    "RowReader",
    "kind_of",
    "open_input",
    "open_output",
]
