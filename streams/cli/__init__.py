"""The command line program ``streams``: one module per command, plus common parts.

``scripts`` loads the user's topology, ``mistakes`` turns errors into messages, ``progress`` shows a
run on a terminal.  No other package imports this one.
"""

from streams.cli.program import main

__all__ = ["main"]
