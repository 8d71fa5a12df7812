"""kcat against ``streams broker``, where it is installed."""

import shutil
import subprocess

import pytest

from tests.waiting import WATCHDOG_S

pytestmark = pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed")


def kcat(address, *arguments, lines=()):
    command = ["kcat", "-b", address, *arguments]
    text = "".join(f"{line}\n" for line in lines)
    return subprocess.run(command, input=text, capture_output=True, text=True, timeout=WATCHDOG_S, check=True).stdout


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_lines_arrive_as_they_were_sent(address, unique, codec):
    topic, lines = unique("kcat"), [f"line {number}" for number in range(500)]

    kcat(address, "-P", "-t", topic, "-z", codec, lines=lines)

    assert kcat(address, "-C", "-t", topic, "-e", "-q").splitlines() == lines
    assert f'topic "{topic}" with 1 partitions' in kcat(address, "-L", "-t", topic)


def test_a_group_goes_on_where_it_was(address, unique):
    topic, group = unique("kcat"), unique("kcat-group")
    kcat(address, "-P", "-t", topic, lines=["a", "b"])
    read = ["-G", group, "-X", "auto.offset.reset=earliest", "-q", "-e", topic]

    assert kcat(address, *read).split() == ["a", "b"]
    kcat(address, "-P", "-t", topic, lines=["c"])

    assert kcat(address, *read).split() == ["c"]
