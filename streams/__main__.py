"""``python -m streams``: the same program as the ``streams`` script."""

import sys

from streams.cli import main

if __name__ == "__main__":
    sys.exit(main())
