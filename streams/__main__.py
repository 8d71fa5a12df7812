"""The entry point of ``python -m streams``, which is the same program as ``streams``."""

import sys

from streams.cli import main

if __name__ == "__main__":
    sys.exit(main())
