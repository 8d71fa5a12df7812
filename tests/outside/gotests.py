"""Tests of Go modules, as the module proxy has them: fetched, built into one program, run, and read line by line."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from attrs import define, field

from tests.outside.suite import TIME_IS_OVER, Outcome, Program, Room, UnavailableError

#: The last lines of a failed test that are its reason.
_NOTE_LINES = 3


def fetched_module(room: Room, module: str, version: str) -> Path:
    """Return the folder of a module in Go's own cache.

    Raises:
        UnavailableError: It is not there, and the proxy does not give it.
    """
    with room.program("go", "mod", "download", "-json", f"{module}@v{version}", log="fetch") as program:
        text = "\n".join(program)
    try:
        answer = json.loads(text[text.index("{") :])
    except ValueError:
        raise UnavailableError(f"go mod download {module}: {text[-300:]}") from None
    if program.status != 0:
        raise UnavailableError(f"go mod download {module}: {answer.get('Error', 'failed')}")
    return Path(answer["Dir"])


def built_tests(room: Room, folder: Path, package: str = ".", tags: str = "") -> Path:
    """Build the tests of a package of a module into a program in the room's cache.

    Raises:
        UnavailableError: They cannot be built, or what they need cannot be fetched.
    """
    target = room.cache / f"{folder.name}-{Path(package).name or 'all'}.test"
    room.fetch("go", "test", "-c", "-tags", tags, "-o", str(target), package, cwd=folder, env={"GOFLAGS": "-mod=mod"})
    return target


@define
class _Test:
    result: str = ""
    said: list[str] = field(factory=list)


def run_tests(
    room: Room,
    program: Path,
    folder: Path,
    *options: str,
    prefix: str = "",
    env: Mapping[str, str] | None = None,
    quiet_s: float = 300.0,
    may_be_cut: bool = False,
) -> Iterator[Outcome]:
    """Run a program of tests; yield an outcome for each test, and for those subtests that have none themselves.

    A test that has begun and does not end has failed; if it ``may_be_cut`` short and the time is over, it is left
    out.
    """
    tests: dict[str, _Test] = {}
    # The room ends it: Go's own end of the time is a panic, that of a test which may be cut too.
    command = ["go", "tool", "test2json", str(program), "-test.v=test2json", "-test.timeout=0"]
    with room.program(*command, *options, cwd=folder, env=env, quiet_s=quiet_s, log=f"output{prefix}") as running:
        for line in running:
            event = _event(line)
            if (name := event.get("Test")) is None:
                continue
            test = tests.setdefault(name, _Test())
            if event["Action"] == "output":
                test.said = [*test.said, event.get("Output", "").strip()][-20:]
            elif event["Action"] in ("pass", "fail", "skip"):
                test.result = event["Action"]
                if (outcome := _outcome(prefix + name, name, test, tests)) is not None:
                    yield outcome
    for name, test in tests.items():
        if not test.result and not _below(name, tests):
            is_cut = may_be_cut and running.ended_by == TIME_IS_OVER
            yield Outcome(prefix + name, "left out" if is_cut else "failed", f"no end: {_ending(running)}")
    if not tests:
        raise UnavailableError(f"the tests did not start: {_ending(running)}")


def _event(line: str) -> dict[str, str]:
    try:
        event = json.loads(line)
    except ValueError:
        return {}
    return event if isinstance(event, dict) else {}


def _outcome(shown: str, name: str, test: _Test, tests: Mapping[str, _Test]) -> Outcome | None:
    """Return what became of a test; None of one whose subtests say it."""
    below = _below(name, tests)
    if below and (test.result != "fail" or any(other.result == "fail" for other in below)):
        return None
    if test.result == "pass":
        return Outcome(shown, "passed")
    said = [line for line in test.said if line and not line.startswith(("=== ", "--- "))]
    return Outcome(shown, "failed" if test.result == "fail" else "left out", " | ".join(said[-_NOTE_LINES:]))


def _below(name: str, tests: Mapping[str, _Test]) -> list[_Test]:
    return [test for key, test in tests.items() if key.startswith(f"{name}/")]


def _ending(running: Program) -> str:
    lines = running.log.read_text(errors="replace").splitlines()
    panic = next((line for line in lines if "panic:" in line), lines[-1] if lines else "it said nothing")
    return running.ended_by or f"exit status {running.status}: {panic[-200:]}"
