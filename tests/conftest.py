"""What all tests share: which of them are run, and what the last lines say of those that are not."""

import gc
import importlib.util
import os
import shlex
import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests import sample
from tests.spark_session import _spark_and_port as _spark_and_port
from tests.spark_session import any_spark as any_spark
from tests.spark_session import connect as connect
from tests.spark_session import short_lived_java as short_lived_java
from tests.spark_session import spark as spark

# Deadlines measure the machine, not the code; CI runs the same examples each time.
settings.register_profile("default", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")
#: Examples that a property test tries for each seed.
EXAMPLES = 25

KAFKA = "of a real Kafka (make kafka-test)"
DEPLOY = "of wheels and of the Helm chart (make deploy-test)"
COLLECTOR = "of a real OpenTelemetry Collector (make collector-test)"
EXHAUSTIVE = "of all that others try some of (make test-all SEEDS=2)"
BROWSER = "of the page in a browser (make browser-test)"


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--scope`` chooses between the sample of `make test` and everything, ``--seeds`` how much of each kind."""
    parser.addoption(
        "--scope",
        choices=("sample", "rest", "all"),
        help="which tests to run: the sample of `make test`, the rest of them, or all as `make test-all`; "
        "the sample by default, all where tests are named by their ids",
    )
    parser.addoption(
        "--seeds",
        type=int,
        help="how many seeds, worlds and cases of each test that is marked with `seeds` to try, and how many times the "
        "examples of a property; 1 by default, all where tests are named by their ids",
    )
    parser.addoption(
        "--pictures", action="store_true", help="write the pictures of the docs, in the tests of a browser"
    )


def chromium() -> tuple[str | None, str | None]:
    """Return the programs of the browser and of its driver, None for one that is not on the PATH."""
    return shutil.which("chromium") or shutil.which("chromium-browser"), shutil.which("chromedriver")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keep the tests of a group in one worker.

    Not by the marker ``xdist_group``: with pytest 9.2 it has no effect, because ids cannot be changed any more.
    """
    from xdist.scheduler import LoadScopeScheduling

    class Groups(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            # A module's tests share the nodes that it starts.
            return nodeid.partition("::")[0] if "kafka" in config.option.markexpr else sample.group_of(nodeid)

    return Groups(config, log)


def pytest_configure(config: pytest.Config) -> None:
    """Choose everything where tests are named one by one, or by a marker."""
    # Collecting makes a million objects that stay: to look through them again and again takes a third of its time.
    gc.disable()
    if config.option.scope is None:
        is_named = any("::" in argument for argument in config.args) or bool(config.option.markexpr)
        config.option.scope = "all" if is_named else "sample"
    settings.register_profile("scope", settings(), max_examples=EXAMPLES * (config.option.seeds or 1))
    settings.load_profile("scope")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make of a test that is marked with ``seeds`` as many as ``--seeds`` says."""
    for mark in metafunc.definition.iter_markers("seeds"):
        names, values, *each = mark.args
        count = seeds_of(metafunc.config) * (each[0] if each else 1)
        metafunc.parametrize(names, list(values)[:count], **mark.kwargs)


def seeds_of(config: pytest.Config) -> int:
    """Return how many seeds of each kind to try."""
    if config.option.seeds is not None:
        return int(config.option.seeds)
    return sys.maxsize if any("::" in argument for argument in config.args) else 1


@pytest.fixture
def seeds(request: pytest.FixtureRequest) -> int:
    """How many seeds a test tries that goes through them itself; one where it is named by its id."""
    return int(request.config.option.seeds or 1)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what cannot run here or is not of the scope, and begin with the longest tests."""
    rest = sample.left_out(map(marked, items))
    if config.option.scope == "rest":
        chosen = [item for item in items if item.nodeid in rest]
        config.hook.pytest_deselected(items=[item for item in items if item not in set(chosen)])
        items[:] = chosen
    for item in items:
        reason = _absence(config, item)
        if reason is None and item.get_closest_marker("exhaustive") and seeds_of(config) == 1:
            reason = EXHAUSTIVE
        if reason is None and config.option.scope == "sample" and item.nodeid in rest:
            reason = f"{rest[item.nodeid]} (make test-rest)"
        if reason is not None:
            item.add_marker(pytest.mark.skip(reason=reason))
    # Where several workers share the tests, a long one that comes last is waited for by all.
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


def pytest_collection_finish() -> None:
    """Collect garbage again, but of what the tests make only."""
    gc.freeze()
    gc.enable()


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Look for tests in test modules only: the examples of docstrings are those of the product."""
    return (collection_path.suffix == ".py" and not collection_path.name.startswith("test_")) or None


def marked(item: pytest.Item) -> sample.Marked:
    """Return a test with its marks."""
    marks: dict[str, tuple[object, ...]] = {}
    for mark in item.iter_markers():
        marks.setdefault(mark.name, mark.args)
    return sample.Marked(item.nodeid, marks)


def _absence(config: pytest.Config, item: pytest.Item) -> str | None:
    """Return of what kind a test is that cannot run here, None if it can."""
    if item.get_closest_marker("kafka") and "kafka" not in config.option.markexpr:
        return KAFKA
    if item.get_closest_marker("deploy") and "deploy" not in config.option.markexpr:
        return DEPLOY
    if item.get_closest_marker("collector") and "collector" not in config.option.markexpr:
        return COLLECTOR
    if item.get_closest_marker("browser"):
        if "browser" not in config.option.markexpr:
            return BROWSER
        if None in chromium() or importlib.util.find_spec("selenium") is None:
            return "of the page in a browser, which need chromium, chromedriver and the extra browser"
    if _needs_spark(item) and not os.environ.get("JAVA_HOME") and shutil.which("java") is None:
        return "of Spark, which needs Java 17: there is no java on the PATH"
    return None


def _needs_spark(item: pytest.Item) -> bool:
    return item.get_closest_marker("spark") is not None or "_spark_and_port" in getattr(item, "fixturenames", ())


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what was left out and why, a line for each reason."""
    reasons: Counter[str] = Counter()
    for report in terminalreporter.stats.get("skipped", ()):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reasons[reason.removeprefix("Skipped: ")] += 1
    if reasons:
        terminalreporter.section("left out")
    for reason, count in reasons.most_common():
        terminalreporter.write_line(f"{count:5,} test{'s' if count > 1 else ''}: {reason}")
    failed = [report.nodeid for kind in ("failed", "error") for report in terminalreporter.stats.get(kind, ())]
    if failed:
        terminalreporter.section("to repeat")
    for test_id in dict.fromkeys(failed):
        terminalreporter.write_line(_again(terminalreporter.config, test_id))


def _again(config: pytest.Config, test_id: str) -> str:
    """Return the command that runs a test alone, with the seeds and examples that it had."""
    option = config.option
    words = [f"--seeds {seeds_of(config)}"] if seeds_of(config) < sys.maxsize else []
    words += [f"-m {option.markexpr.split()[0]}"] if option.markexpr else []
    ci = "CI=1 " if os.environ.get("CI") else ""
    return " ".join([f"{ci}python -m pytest", *words, shlex.quote(test_id)])
