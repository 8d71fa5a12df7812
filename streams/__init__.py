"""Kafka Streams for Python.

A topology is a plain function of a ``StreamsBuilder``.  The same function runs live on the
embedded broker or a Kafka cluster (``run``, ``Streams``), in tests (``streams.testing``), and bounded over
files (``streams run``).
"""

from streams.core.lazy_names import names_of_stub

# A program that needs one name, such as the command line, loads the modules of that name only.
__getattr__, __dir__, __all__ = names_of_stub(__spec__)
