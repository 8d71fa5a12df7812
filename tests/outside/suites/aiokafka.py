"""aiokafka's tests: they start Kafka in Docker, in whose place stands ``tests/outside/aiokafka/docker.py``."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

from tests.outside.pytests import environment, run_pytest
from tests.outside.repositories import repository, work_tree
from tests.outside.suite import ROOT, STREAMS, Outcome, Room, Suite

REPOSITORY = "https://github.com/aio-libs/aiokafka.git"
COMMIT = "672947afe85c91b7d953f0259e69837a711d3246"
VERSION = "0.14.0"


def run(room: Room) -> Iterator[Outcome]:
    """Run all tests with the client that is on PyPI."""
    # Without the client, so that the installed one is tested, with its compiled parts.
    git = repository(room, "AIOKAFKA_GIT", REPOSITORY, COMMIT)
    folder = work_tree(room, git, COMMIT, "tests", "pyproject.toml")
    # The fixture of all tests makes a key for Kerberos, which no test that is run asks for.
    ktutil = room.cache / "bin" / "ktutil"
    ktutil.parent.mkdir(exist_ok=True)
    ktutil.write_text("#!/bin/sh\ncat >/dev/null\n")
    ktutil.chmod(0o755)
    python = environment(
        room, f"aiokafka[snappy,lz4,zstd]=={VERSION}", "pytest==9.0.2", "pytest-asyncio==1.3.0", "pytest-mock", "attrs"
    )
    command = json.dumps([*STREAMS, "broker", "--data", str(room.logs / "data")])
    shadow = str(Path(__file__).parents[1] / "aiokafka")
    env = {"STREAMS_BROKER": command, "STREAMS_PATH": str(ROOT)}
    env |= {"PATH": f"{ktutil.parent}{os.pathsep}{os.environ['PATH']}"}
    only = ["-k", room.only] if room.only else []
    options = ("--docker-image", "kafka:4_3.9.0", "-o", "asyncio_default_fixture_loop_scope=function", *only)
    yield from run_pytest(room, python, folder, *options, env=env, places=(shadow,))


SUITE = Suite(
    name="aiokafka",
    title="aiokafka (Python)",
    version=VERSION,
    origin=f"the tests of {REPOSITORY} (`AIOKAFKA_GIT`: a git directory of it), with the client from PyPI",
    needs=("git",),
    limit_s=2_400.0,
    run=run,
)
