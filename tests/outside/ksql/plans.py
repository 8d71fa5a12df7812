"""The recorded plans of ksqlDB's functional tests, their inputs, and the outputs that are expected.

They are read from a git directory without a work tree.  ksqlDB records, for each test, a plan for each version of it;
the newest one counts, whose outputs may still be those of an old version of Kafka Streams.
"""

import json
import subprocess
from collections import defaultdict
from collections.abc import Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

from attrs import frozen

RESOURCES = "ksqldb-functional-tests/src/test/resources"


@frozen
class Plan:
    """A test: its plan and ``case``, with inputs and outputs."""

    git: Path
    commit: str
    name: str
    commands: list[Any]
    spec: Mapping[str, Any]

    @property
    def case(self) -> Mapping[str, Any]:
        """Inputs, outputs and settings."""
        case: Mapping[str, Any] = self.spec["testCase"]
        return case

    def current_outputs(self) -> list[Any]:
        """Return the outputs of the test in the newest ksqlDB; nothing if it is gone, or its inputs differ."""
        text = git_output(self.git, "show", f"{self.commit}:{RESOURCES}/{self.spec['path']}")
        for test in json.loads(text, parse_float=Decimal, strict=False)["tests"] if text else ():
            if test["name"] in (self.case["name"], self.case["name"].rsplit(" - ", 1)[0]):
                one, two = (
                    [(row["topic"], row.get("value")) for row in of.get("inputs", ())] for of in (test, self.case)
                )
                if one == two:
                    return list(test.get("outputs", ()))
        return []


def git_output(git: Path, *arguments: str) -> str:
    """Return what git says, nothing if it fails."""
    return subprocess.run(["git", f"--git-dir={git}", *arguments], capture_output=True, text=True, check=False).stdout


def plans(git: Path, commit: str) -> Iterator[Plan]:
    """Yield the newest plan of each test, in the order of their names."""
    folder = f"{RESOURCES}/historical_plans/"
    blobs: dict[str, dict[int, dict[str, str]]] = defaultdict(lambda: defaultdict(dict))
    for line in git_output(git, "ls-tree", "-r", commit, folder).splitlines():
        meta, path = line.split("\t")
        test, version, file = path.removeprefix(folder).split("/")
        blobs[test][int(version.rsplit("_", 1)[1])][file] = meta.split()[2]
    batch = ["git", f"--git-dir={git}", "cat-file", "--batch"]
    with subprocess.Popen(batch, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for test, versions in sorted(blobs.items()):
            files = {}
            for name in ("plan.json", "spec.json"):
                process.stdin.write(f"{versions[max(versions)][name]}\n".encode())
                process.stdin.flush()
                size = int(process.stdout.readline().split()[2])
                files[name] = json.loads(process.stdout.read(size + 1), parse_float=Decimal)
            yield Plan(git, commit, test, files["plan.json"]["plan"], files["spec.json"])
        process.stdin.close()
