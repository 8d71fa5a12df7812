"""Runs a command again and again beside busy loops, until it fails: ``make test-stress``.

A test that depends on how fast the machine is fails here sooner or later.
"""

import argparse
import subprocess
import sys
import time


def busy() -> "subprocess.Popen[bytes]":
    """Start a process that takes all of the processor that it gets."""
    return subprocess.Popen([sys.executable, "-c", "while True: pass"])


def main(arguments: list[str]) -> int:
    """Run ``--rounds`` rounds beside ``--busy`` loops; return the status of the first that fails, or 0."""
    parser = argparse.ArgumentParser(prog="python -m tests.stress", description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--busy", type=int, default=4)
    parser.add_argument("command", nargs="+")
    options = parser.parse_args(arguments)
    loops = [busy() for _ in range(options.busy)]
    try:
        for number in range(1, options.rounds + 1):
            began = time.monotonic()
            status = subprocess.run(options.command, check=False).returncode
            seconds = time.monotonic() - began
            print(f"round {number} of {options.rounds}: exit status {status} after {seconds:.0f} s", flush=True)
            if status:
                return status
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
