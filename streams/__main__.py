"""``python -m streams``: the same program as the script ``streams``."""

import sys

from streams.cli import main

if __name__ == "__main__":
    sys.exit(main())
