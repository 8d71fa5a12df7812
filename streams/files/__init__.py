"""Files as inputs and outputs of topics: JSON lines, whole records, CSV, text and Parquet.

``kinds`` determines a file's kind, ``lines`` and ``formats`` split files into rows, ``reader`` turns rows into
records, and ``writer`` writes records to files.  ``listing`` finds the files of folders and patterns,
``file_systems`` the file system of a URI, ``parts`` divides a file among several readers, ``lake`` recognizes folders
with table formats, and ``ledger`` records which input files have been read by an application with a state directory.
Of the other packages, this package imports only ``core`` and ``values``.
"""

from streams.files.compression import COMPRESSED as COMPRESSED
from streams.files.file_systems import FileSystemError as FileSystemError
from streams.files.file_systems import file_system as file_system
from streams.files.file_systems import is_local as is_local
from streams.files.file_systems import short_reason as short_reason
from streams.files.file_systems import whole_file as whole_file
from streams.files.folder_columns import folder_cells as folder_cells
from streams.files.kinds import BY_SUFFIX as BY_SUFFIX
from streams.files.kinds import STANDARD_OUTPUT as STANDARD_OUTPUT
from streams.files.kinds import WHOLE as WHOLE
from streams.files.kinds import WRITTEN as WRITTEN
from streams.files.kinds import FileKind as FileKind
from streams.files.kinds import FileSource as FileSource
from streams.files.kinds import FormatOption as FormatOption
from streams.files.kinds import Kind as Kind
from streams.files.kinds import Location as Location
from streams.files.kinds import Part as Part
from streams.files.kinds import input_kind as input_kind
from streams.files.kinds import kind_of as kind_of
from streams.files.kinds import listed as listed
from streams.files.kinds import nearby as nearby
from streams.files.kinds import open_binary as open_binary
from streams.files.lake import FORMATS as FORMATS
from streams.files.lake import LakeTable as LakeTable
from streams.files.lake import table_around as table_around
from streams.files.lake import table_below as table_below
from streams.files.ledger import Continued as Continued
from streams.files.ledger import Ledger as Ledger
from streams.files.lines import first_content as first_content
from streams.files.listing import is_hidden as is_hidden
from streams.files.listing import local_files as local_files
from streams.files.listing import local_sources as local_sources
from streams.files.parts import count_rows as count_rows
from streams.files.parts import cut_file as cut_file
from streams.files.reader import FileInput as FileInput
from streams.files.reader import OnBadRow as OnBadRow
from streams.files.reader import Records as Records
from streams.files.reader import RowReader as RowReader
from streams.files.reader import as_list as as_list
from streams.files.reader import open_input as open_input
from streams.files.reader import open_table as open_table
from streams.files.writer import FileOutput as FileOutput
from streams.files.writer import OutputError as OutputError
from streams.files.writer import open_output as open_output
