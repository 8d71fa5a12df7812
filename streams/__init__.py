"""Kafka Streams for Python.

A topology is a plain function of a ``StreamsBuilder``.  The same function runs live on the
embedded broker or a Kafka cluster (``run``, ``Streams``), in tests (``streams.testing``), and bounded over
files (``streams run``).
"""

import lazy_loader

# A program that needs one name, such as the command line, loads the modules of that name only.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
