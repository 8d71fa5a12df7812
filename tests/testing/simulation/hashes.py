"""Programs in which strings hash differently: sets have another order there."""

import os
import subprocess
import sys


def printed_with_other_hashes(program: str) -> list[str]:
    """Run a program in two interpreters with a hash seed each; return what each prints."""
    return [
        subprocess.run(
            [sys.executable, "-c", program],
            env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": os.getcwd()},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
