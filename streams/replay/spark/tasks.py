"""Functions that Spark's Python workers run: how they are sent, with the project's code, and how errors are returned.

Each job of a replay runs a function of the project with ``mapInArrow``.  Its arguments are sent as bytes: a worker
first chooses its build of the project, checks that it is the driver's, and only then reads them.

This module does not import ``pyspark``.
"""

import pickle
import zipfile
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import Any

from attrs import frozen

from streams.replay.calls.failures import TaskFailure, packed
from streams.replay.errors import ReplayError
from streams.replay.spark.builds import PACKAGE, digest_of, files_of

#: Files that are not sent: a zip file cannot load compiled modules, and bytecode belongs to one version of Python.
_NOT_SENT = (".pyc", ".pyo", ".so", ".pyd", ".c")


@cache
def build_digest() -> str:
    """Return a digest of the project's source code in this process, which was loaded from a folder or a zip file."""
    return digest_of(files(PACKAGE))


def check_build(expected: str, own: str) -> None:
    """Check that this process has the same code as the driver.

    Raises:
        ReplayError: the digests differ.
    """
    if expected != own:
        raise ReplayError(
            f"the workers of Spark have another build of {PACKAGE} ({own}) than the driver ({expected}); "
            "install the same one on all machines, or none on the workers, and begin with a new session"
        )


def write_package(folder: Path) -> Path:
    """Write the project's code as an importable zip file; return its path."""
    path = folder / f"{PACKAGE}-{build_digest()}.zip"
    package = files(PACKAGE)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, file in files_of(package, PACKAGE):
            if not name.endswith(_NOT_SENT):
                archive.writestr(name, file.read_bytes())
        chooser = package.joinpath("replay", "spark", "builds.py")
        archive.writestr(f"{PACKAGE}_builds.py", chooser.read_bytes())
    return path


#: A function from Arrow batches to Arrow batches, as for ``mapInArrow``.
Task = Callable[[Iterator[Any]], Iterator[Any]]


@frozen
class CallName:
    """The name and stage of a call to an executor, for the error of a task that fails."""

    name: str
    stage: int = -1


@frozen
class WorkerFunction:
    """A function of a module of the project, by name, with its arguments as bytes."""

    module: str
    name: str
    arguments: bytes
    #: The digest of the driver's build.
    digest: str

    @classmethod
    def of(cls, function: Callable[..., Iterator[Any]], *arguments: Any) -> "WorkerFunction":
        """Return ``function(*arguments, batches)`` as a value; the arguments must be picklable."""
        return cls(function.__module__, function.__name__, pickle.dumps(arguments), build_digest())

    def run(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Run the function in this process.

        Raises:
            ReplayError: this process has another build of the project than the driver.
        """
        check_build(self.digest, build_digest())
        arguments = pickle.loads(self.arguments)
        yield from getattr(import_module(self.module), self.name)(*arguments, batches)


def worker_task(call: CallName | None, function: Callable[..., Iterator[Any]], *arguments: Any) -> Task:
    """Return ``function(*arguments, batches)`` as a function for ``mapInArrow``.

    An error in a worker is packed with the name of the call, for ``explained_failure`` in the driver.  If the name is
    None, the error is raised unchanged, for jobs that the user starts.
    """
    task = WorkerFunction.of(function, *arguments)
    fields = task.module, task.name, task.arguments, task.digest
    label = None if call is None else (call.name, call.stage)

    # This function is pickled by value, and has only values of Python itself: a worker without the project then fails
    # with an import error, not with an unpickling error.
    def run(batches: Any) -> Any:
        import importlib

        try:
            builds = importlib.import_module("streams_builds")
        except ModuleNotFoundError:
            pass  # Nothing was sent, since Spark runs on the driver's machine.
        else:
            builds.use_installed(fields[-1])
        from streams.replay.spark.tasks import run_task

        return run_task(label, fields, batches)

    return run


def run_task(
    label: tuple[str, int] | None, fields: tuple[str, str, bytes, str], batches: Iterator[Any]
) -> Iterator[Any]:
    """Run the function of a task in a worker.

    Raises:
        TaskFailure: the task failed; the text includes the details that the driver needs.
        Exception: the task failed, and ``label`` is None.
    """
    function = WorkerFunction(*fields)
    if label is None:
        yield from function.run(batches)
        return
    try:
        yield from function.run(batches)
    except (GeneratorExit, KeyboardInterrupt, TaskFailure):
        raise
    except BaseException as error:
        raise packed(CallName(*label), error) from error
