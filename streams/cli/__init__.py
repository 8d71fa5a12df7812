"""The program ``streams``: one module per command, and what they share.

``scripts`` loads the user's topology, ``mistakes`` turns errors into messages, ``progress`` shows a
run on a terminal.  On top of everything; nothing imports it.
"""

from streams.cli.program import main

__all__ = ["main"]
