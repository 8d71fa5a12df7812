"""``python -m tests.bench.scale NAME [options]``: how cost and memory follow size.

state      a count over 20 million keys: rate and memory
expiry     a bucket of windows expires while ever more are alive
many       10,000 partitions and 1,000 tasks in one process
cost       records, keys, partitions, operators in a chain
restore    a store from its changelog, against Kafka Streams (Java, `make kafka-jars`)
workers    processes that share the work (`streams run --workers`)
plot       draws what the others have noted
"""

import sys
from importlib import import_module

_NAMES = ("state", "expiry", "many", "cost", "restore", "workers", "plot")


def main() -> None:
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in _NAMES:
        sys.exit(f"{__doc__}\nNAME is one of: {', '.join(_NAMES)}")
    import_module(f"tests.bench.scale_{name}").run(sys.argv[2:])


if __name__ == "__main__":
    main()
