"""Ready-made functions for ``KStream.look_up``: SQL, HTTP, and files that are watched."""

from streams.lookup.http import HttpLookUp
from streams.lookup.sql import SqlLookUp
from streams.lookup.table_file import FileLookUp

__all__ = ["FileLookUp", "HttpLookUp", "SqlLookUp"]
