"""Functions that Spark's Python workers run: how they are sent, and how their errors are returned.

Each job of a replay runs a function of the project with ``mapInArrow``.  Its arguments are sent as bytes: a worker
first chooses its build of the project, checks that it is the driver's, and only then reads them.
"""

import pickle
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

from attrs import frozen

from streams.replay.calls.failures import TaskFailure, packed
from streams.replay.spark.shipping import build_digest, check_build

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
    given = WorkerFunction.of(function, *arguments)
    fields = given.module, given.name, given.arguments, given.digest
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
