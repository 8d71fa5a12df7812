"""Files as inputs and outputs of topics: JSON lines, whole records, CSV, text and Parquet.

``kinds`` determines a file's kind, ``lines`` and ``formats`` split files into rows, ``forms`` converts keys and
values from and to JSON, ``reader`` turns rows into records, and ``writer`` writes records to files.  ``parts``
divides a file among several readers, ``lake`` recognizes folders with table formats, and ``ledger`` records which
input files have been read with a state directory.
Imports core only.
"""

from streams.files.arrow import arrow_column
from streams.files.forms import BAD_INPUT, Form, form_of, json_type
from streams.files.kinds import STANDARD_OUTPUT, WHOLE, WRITTEN, FileSource, Kind, Part, input_kind, kind_of, listed
from streams.files.lake import FORMATS, LakeTable, table_around, table_below
from streams.files.ledger import Continued, Ledger
from streams.files.parts import count_rows, cut_file
from streams.files.reader import FileInput, OnBadRow, RowReader, open_input
from streams.files.writer import FileOutput, OutputError, open_output

__all__ = [
    "BAD_INPUT",
    "Continued",
    "FORMATS",
    "FileInput",
    "Form",
    "FileOutput",
    "FileSource",
    "Kind",
    "LakeTable",
    "Ledger",
    "OnBadRow",
    "OutputError",
    "Part",
    "RowReader",
    "STANDARD_OUTPUT",
    "WHOLE",
    "WRITTEN",
    "arrow_column",
    "count_rows",
    "cut_file",
    "form_of",
    "input_kind",
    "json_type",
    "kind_of",
    "listed",
    "open_input",
    "open_output",
    "table_around",
    "table_below",
]
