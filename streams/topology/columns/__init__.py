"""Columns: what users' functions do, as expressions over fields, and which nodes of a topology can be computed so."""

from streams.topology.columns.verdicts import ColumnVerdict as ColumnVerdict
from streams.topology.columns.verdicts import verdicts as verdicts
