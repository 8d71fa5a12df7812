"""The commands of a page of the documentation, as its reader types them, with a number of partitions of our choice.

A ``console`` block has commands and what they print; an ``sh`` block has commands alone, among them such as run until
Ctrl-C, and such as need what is no part of this library.  What is not run here has its reason in ``NOT_RUN``; what runs
on and on ends when what ``RUNS_ON`` says has come.
"""

import doctest
import os
import pty
import re
import subprocess
import termios
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from signal import SIGINT
from typing import BinaryIO

from attrs import define, field, frozen

from streams import EmbeddedBroker, Producer, TopicPartition
from streams.cli.interrupts import INTERRUPTED
from tests import programs
from tests.ports import free_ports
from tests.waiting import WATCHDOG_S, until

FLAGS = doctest.ELLIPSIS
#: A command of this library at the beginning of a line, of a part of a pipe, or in a substitution.
OURS = re.compile(r"(?:^(?:\$ )?|[|;&(]\s*)(?:\.venv/bin/)?(?:streams|python) ", re.MULTILINE)
_SECONDS = re.compile(r"^(streams: (?:.*(?:in|out|late|dropped), )?)\d+\.\d s\b", re.MULTILINE)
_COMMENT = re.compile(r"\s+#\s.*$")
#: The command ``streams`` with a number of partitions, where nothing else says it.
_WRAPPER = """\
#!/bin/sh
case "$1" in run|replay|diff|why|dev)
    case " $* " in
        *" --partitions "*|*" --bootstrap-servers "*|*" --from-snapshot "*|*" --state-from "*) ;;
        *) set -- "$@" --partitions {partitions} ;;
    esac
esac
exec "{plain}" "$@"
"""

_CLUSTER = "needs a cluster of Spark and a lake; the commands on one machine are run"
_LAKE = "needs the tables of a catalog; tests/replay/test_table_inputs.py and tests/replay/test_lake*.py have some"
_TAKEOVER = "needs an application in Java; tests/kafka/test_takeover_guide.py runs the page on a real Kafka"
#: Commands of ``sh`` blocks that are not run here: by pattern, with the reason and what shows them instead.
NOT_RUN = {
    r"streams replay shop\.py .*(spark|sc)://|--master yarn": _CLUSTER,
    r"streams replay shop\.py .*(table:|delta:|iceberg:|sql:)": _LAKE,
    r"streams replay shop\.py \.\.\. --master local": "is an option of the command above it, which is run",
    r"streams replay shop\.py .*orders=data/history --output": "runs on Spark; the replays in local processes are run",
    r"streams run shop\.py --from-snapshot since": "follows a replay of tables; tests/replay/test_golive.py goes on",
    r"orders=kafka://": "needs Spark's Kafka source; tests/kafka/test_replay.py reads a topic with it",
    r"streams golive snapshot": "needs the topic of the history; tests/replay/test_golive.py goes live on one",
    r"streams takeover": _TAKEOVER,
}


@frozen
class RunsOn:
    """A command that runs until Ctrl-C, and what comes before it is ended: a text that it prints, or a record."""

    pattern: str
    prints: str = ""
    #: A topic on the cluster of the page that gets ``lines``, and one that has a record then.
    topic: str = ""
    lines: tuple[str, ...] = ()
    output: str = ""


_LOG = '192.0.2.1 - - [27/Feb/2026:22:00:00 +0000] "GET / HTTP/1.1" 200 1 "-" "-"'
RUNS_ON = (
    RunsOn(r"streams broker .*--registry", "registry"),
    RunsOn(r"streams (broker|run) .*--listen", "listens on"),
    RunsOn(r"streams consume word_count\.py:counts", "1\n1"),
    RunsOn(r"streams run word_count\.py --bootstrap", topic="lines", lines=("hello",), output="counts"),
    RunsOn(r"streams run sessions\.py --bootstrap", topic="access", lines=(_LOG,), output="sessions"),
    RunsOn(r"streams run (sessions|shop)\.py .*--state-dir", "on an embedded broker"),
    RunsOn(r"streams run .*--http", "http://"),
    RunsOn(r"streams dev word_count", "counts: "),
    RunsOn(r"streams dev ", "revenue: "),
)
#: Commands whose output is another with other partitions, and why.
OF_ITS_PARTITIONS = {
    r"^streams dlq ": "names the partitions of letters",
    r"^streams diff .* --limit 1$": "shows the first of several examples",
    r"^streams (run|diff) .*shop2\.py --input orders=monday\.jsonl ": "closes windows by task",
    r"^streams reset spendings ": "has a line for each partition",
}
#: What stands before a command where the page leaves it to the reader.
BEFORE = {
    r"broker .*--repair": "streams topics create t --state-dir . || true",
    r"streams top ": "streams run word_count.py --http 127.0.0.1:8080",
    r"completion fish": "mkdir -p ~/.config/fish/completions",
}
#: Examples that pages name without showing them.
_EXAMPLES = {"word_count.py": "01_word_count.py", "sessions.py": "02_sessions.py"}
#: Addresses in commands, in the place of which free ports are taken: of the cluster, of HTTP, and of a registry.
_ADDRESSES = (r"kafka-1:9092,kafka-2:9092|(127\.0\.0\.1|localhost):9092", r"127\.0\.0\.1:8080", r"127\.0\.0\.1:8081")


def commands_of(source: str) -> Iterator[str]:
    """Yield the commands of this library in an ``sh`` block, without comments and in one line each."""
    for line in source.replace("\\\n", " ").splitlines():
        command = _COMMENT.sub("", line).strip()
        if OURS.search(command):
            yield command.replace(".venv/bin/", "")


def _is_like(expected: str, printed: str) -> bool:
    """Whether a text is as expected, but for the time of a run in its last line."""
    return doctest.OutputChecker().check_output(
        *(_SECONDS.sub(r"\g<1>0.1 s", text) for text in (expected, printed)), FLAGS
    )


def _unordered(text: str) -> str:
    """Return lines in their alphabetical order, without guides, the partition of a record and its offset there."""
    text = re.sub(r'"partition":\d+', '"partition":0', text)
    text = re.sub(r"^[├└│─ ]+", "", text, flags=re.MULTILINE)
    lines = re.sub(r"-\d+ offset \d+", "-0 offset 0", text).splitlines(keepends=True)
    return "".join(sorted(lines))


def why_not_run(command: str) -> str | None:
    """Return the pattern of ``NOT_RUN`` that a command matches."""
    return next((pattern for pattern in NOT_RUN if re.search(pattern, command)), None)


@define
class Shell:
    """A shell in the folder of a page; topics have ``partitions``, unless a command or a script says how many."""

    folder: Path
    commands: Path
    partitions: int
    _environment: dict[str, str] = field(init=False)
    _ports: list[int] = field(factory=lambda: free_ports(3))
    _open: ExitStack = field(factory=ExitStack)
    _broker: EmbeddedBroker | None = None
    #: Whether there is a broker at the address of the page's cluster.
    _has_cluster: bool = False

    def __attrs_post_init__(self) -> None:
        # What a page writes into the home of its reader stays in the folder of the page.
        self._environment = programs.shell_environment(self.commands) | {"HOME": str(self.folder), "TERM": "dumb"}
        if self.partitions > 1:
            own = self.folder / ".commands"
            own.mkdir()
            wrapper = own / "streams"
            plain = self.commands / "streams"
            wrapper.write_text(_WRAPPER.format(partitions=self.partitions, plain=plain))
            wrapper.chmod(0o755)
            self._environment["PATH"] = os.pathsep.join((str(own), self._environment["PATH"]))

    def console(self, source: str, place: str) -> None:
        """Run the commands of a ``console`` block, and compare what they print.

        With other partitions than those of the page, lines come in another order.
        """
        for part in re.split(r"^\$ ", source, flags=re.MULTILINE)[1:]:
            command, _, expected = part.partition("\n")
            printed, status = self._run(command)
            if status:
                printed += f"[{status}]\n"
            is_as_said = _is_like(expected, printed)
            if self.partitions > 1:
                is_as_said = is_as_said or _is_like(_unordered(expected), _unordered(printed))
                if any(re.search(pattern, command) for pattern in OF_ITS_PARTITIONS):
                    assert not is_as_said, f"{place}: $ {command}\nis no command whose output depends on partitions"
                    continue
            assert is_as_said, f"{place}: $ {command}\n{printed}"

    def script(self, source: str, place: str) -> None:
        """Run the commands of an ``sh`` block; those that run on are ended with the page, or before the next one."""
        for command in commands_of(source):
            if why_not_run(command) is None:
                for pattern, before in BEFORE.items():
                    if re.search(pattern, command):
                        self._command(before, place)
                self._command(command, place)

    def close(self) -> None:
        """End what runs."""
        self._open.close()

    def _command(self, command: str, place: str) -> None:
        for name, example in _EXAMPLES.items():
            if name in command and not (self.folder / name).exists():
                (self.folder / name).symlink_to(self.folder / "topology_examples" / example)
        for pattern, port in zip(_ADDRESSES, self._ports, strict=True):
            command = re.sub(pattern, f"127.0.0.1:{port}", command)
        runs_on = next((it for it in RUNS_ON if re.search(it.pattern, command)), None)
        has_own_broker = "--state-dir" in command and "--bootstrap-servers" not in command
        if runs_on is not None and ("--listen" in command or "--registry" in command or has_own_broker):
            # What ran before has the address, or the state directory.
            self.close()
        elif "--bootstrap-servers" in command and not self._has_cluster:
            self._serve()
        if runs_on is not None:
            self._start(command, runs_on, place)
            return
        printed, status = self._run(command)
        assert status == 0, f"{place}: $ {command}\n{printed}"

    def _serve(self) -> None:
        """Serve a broker where the page has its cluster."""
        self._broker = self._open.enter_context(EmbeddedBroker(default_partitions=self.partitions))
        self._open.enter_context(self._broker.serve(f"127.0.0.1:{self._ports[0]}"))
        for runs_on in RUNS_ON:
            for topic in filter(None, (runs_on.topic, runs_on.output)):
                self._broker.create_topic(topic, self.partitions, exist_ok=True)
        self._has_cluster = True
        self._open.callback(setattr, self, "_has_cluster", False)

    def _start(self, command: str, runs_on: RunsOn, place: str) -> None:
        """Start a command, and wait for what comes."""
        said = self.folder / f".printed-{len(list(self.folder.glob('.printed-*')))}"
        with said.open("wb") as stream:
            process = subprocess.Popen(
                ["bash", "-c", f"exec {command}"],
                cwd=self.folder,
                env=self._environment | {"STREAMS_COMMIT_INTERVAL_MS": "100"},
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
            )
        self._open.callback(self._end, process, said, f"{place}: $ {command}")
        if "--listen" in command:
            self._has_cluster = True
            self._open.callback(setattr, self, "_has_cluster", False)
        if runs_on.topic:
            assert self._broker is not None
            with Producer(self._broker) as producer:
                for line in runs_on.lines:
                    producer.send(runs_on.topic, line.encode(), key=line.split()[0].encode())

        def has_come() -> bool:
            assert process.poll() is None, f"{place}: $ {command}\n{said.read_text()}"
            if runs_on.output:
                assert self._broker is not None
                return any(
                    self._broker.end_offset(TopicPartition(runs_on.output, number)) for number in range(self.partitions)
                )
            return runs_on.prints in said.read_text()

        until(has_come, seen=said.read_text)

    @staticmethod
    def _end(process: "subprocess.Popen[bytes]", said: Path, what: str) -> None:
        process.send_signal(SIGINT)
        status = process.wait(WATCHDOG_S)
        assert status in (0, INTERRUPTED), f"{what} ended with {status}\n{said.read_text()}"

    def _run(self, command: str) -> tuple[str, int]:
        # Standard output is a terminal, as the reader's is.
        terminal, inner = pty.openpty()
        modes = termios.tcgetattr(inner)
        modes[1] &= ~termios.OPOST  # Line ends stay as they are.
        termios.tcsetattr(inner, termios.TCSANOW, modes)
        with ThreadPoolExecutor() as pool, os.fdopen(terminal, "rb") as stream:
            printed = pool.submit(_whole, stream)
            try:
                done = subprocess.run(
                    ["bash", "-c", command],
                    cwd=self.folder,
                    env=self._environment,
                    stdout=inner,
                    stderr=subprocess.PIPE,
                    text=True,
                    timeout=WATCHDOG_S,
                )
            finally:
                os.close(inner)
            return printed.result() + done.stderr, done.returncode


def _whole(stream: BinaryIO) -> str:
    parts = []
    with suppress(OSError):  # How a terminal says that nobody has it open for writing.
        while part := os.read(stream.fileno(), 1 << 16):
            parts.append(part)
    return b"".join(parts).decode()
