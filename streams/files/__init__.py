"""Files as inputs and outputs of topics: JSON lines, whole records, CSV, text and Parquet.

``kinds`` determines a file's kind, ``lines`` and ``formats`` split files into rows, ``reader`` turns rows into
records, and ``writer`` writes records to files.  ``listing`` finds the files of folders and patterns,
``file_systems`` the file system of a URI, ``parts`` divides a file among several readers, ``lake`` recognizes folders
with table formats, and ``ledger`` records which input files have been read by an application with a state directory.
Of the other packages, this package imports only ``core`` and ``values``.
"""

from streams.core.lazy_names import names_of_stub

# The command line names the kinds of files in its help, and loads no reader for it.
__getattr__, __dir__, __all__ = names_of_stub(__spec__)
