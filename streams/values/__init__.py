"""Values that come in and go out: what a value of a file, table, message or request may become, and how.

``rule`` says what each declared type is read from and written as, and ``declared_columns`` checks the columns of a
table or file by it.  ``cells`` reads cells of text and rows of objects, ``arrow_reader`` Arrow data.  ``json_text``
converts keys and values from and to JSON, ``json_columns`` whole columns to JSON, and ``arrow_writer`` to Arrow;
``record_columns`` has the columns of records in tables.  ``stand_ins`` and ``field_access`` save values that nobody
reads.
Of the other packages, this package imports only ``core``.
"""

from streams.values.arrow_reader import ArrowRows as ArrowRows
from streams.values.arrow_reader import Fields as Fields
from streams.values.arrow_reader import Row as Row
from streams.values.arrow_reader import ValueReader as ValueReader
from streams.values.arrow_reader import plain_batch as plain_batch
from streams.values.arrow_reader import python_objects as python_objects
from streams.values.arrow_writer import arrow_array as arrow_array
from streams.values.arrow_writer import arrow_column as arrow_column
from streams.values.arrow_writer import arrow_table as arrow_table
from streams.values.cells import cell_converter as cell_converter
from streams.values.cells import declared_cells as declared_cells
from streams.values.cells import null_cells as null_cells
from streams.values.declared_columns import WINDOW_COLUMNS as WINDOW_COLUMNS
from streams.values.declared_columns import are_records as are_records
from streams.values.declared_columns import check_file_columns as check_file_columns
from streams.values.declared_columns import check_names as check_names
from streams.values.declared_columns import table_columns as table_columns
from streams.values.json_text import BAD_INPUT as BAD_INPUT
from streams.values.json_text import Form as Form
from streams.values.json_text import Hex as Hex
from streams.values.json_text import form_of as form_of
from streams.values.json_text import json_type as json_type
from streams.values.json_text import object_type as object_type
from streams.values.json_text import text_or_hex_json as text_or_hex_json
from streams.values.record_columns import NULL_FOLDER as NULL_FOLDER
from streams.values.record_columns import ArrowRecords as ArrowRecords
from streams.values.record_columns import PartitionColumn as PartitionColumn
from streams.values.record_columns import file_schema as file_schema
from streams.values.record_columns import folders_of as folders_of
from streams.values.record_columns import headers_array as headers_array
from streams.values.record_columns import headers_type as headers_type
from streams.values.record_columns import partition_columns as partition_columns
from streams.values.record_columns import wide_schema as wide_schema
from streams.values.record_columns import wide_table as wide_table
from streams.values.rule import RULES as RULES
from streams.values.rule import ColumnType as ColumnType
from streams.values.rule import arrow_family as arrow_family
from streams.values.rule import in_utc as in_utc
from streams.values.rule import is_serialized as is_serialized
from streams.values.rule import marked_schema as marked_schema
from streams.values.rule import plain_member as plain_member
from streams.values.rule import plain_type as plain_type
from streams.values.rule import rule_of as rule_of
from streams.values.rule import stored_schema as stored_schema
from streams.values.rule import type_name as type_name
from streams.values.rule import without_zone as without_zone
from streams.values.stand_ins import names_read as names_read
from streams.values.stand_ins import stand_in_decoder as stand_in_decoder
