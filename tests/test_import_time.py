"""``import streams`` and the help load only what is needed: the modules are counted, not the time."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from streams.cli.program import COMMANDS

ROOT = Path(__file__).parents[1]
#: Modules that only some applications need; whoever uses them imports them there.
LATE = {
    "asyncio", "concurrent.futures", "email", "http", "importlib.metadata", "numpy", "pandas", "pyarrow", "pyspark",
    "rich", "rocksdict", "socket", "ssl", "subprocess", "tomllib", "unittest", "urllib.request", "cattrs",
    "cloudpickle", "greenlet", "sqlite3", "xml",
}  # fmt: skip


@pytest.fixture(scope="module")
def loaded() -> set[str]:
    program = "import json, sys; from streams import Streams; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


def test_an_import_loads_nothing_that_only_some_applications_need(loaded: set[str]):
    found = sorted(name for name in loaded if name in LATE or name.split(".")[0] in LATE)

    assert found == [], "import these where they are used"


def test_a_public_name_is_looked_up_once():
    program = "import streams; streams.Record; print('Record' in vars(streams))"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)

    assert done.stdout == "True\n", "lazy_loader before 0.6 takes 3 µs for each use"


def test_a_message_loads_no_replay():
    program = """if True:
        import sys
        from streams.cli import main
        print(main(["broker", "--users", "none"]), "streams.replay" in sys.modules)
    """
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)

    assert (done.stdout, "users' file none cannot be read" in done.stderr) == ("2 False\n", True)


def test_the_schema_registry_is_loaded_with_its_server_only():
    program = """if True:
        import sys, streams, streams.formats
        server = {"streams.broker.registry", "uvicorn"}
        with streams.EmbeddedBroker() as broker:
            before = server & sys.modules.keys()
            broker.serve_registry("127.0.0.1:0")
            print(before, server <= sys.modules.keys())
    """
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)

    assert done.stdout == "set() True\n"


@pytest.mark.parametrize("command", [[], ["--version"], *([name, "--help"] for name in COMMANDS)], ids="-".join)
def test_help_loads_no_more_than_the_arguments(command: list[str]):
    program = f"""if True:
        import json, sys
        from streams.cli import main
        try:
            main({command})
        except SystemExit:
            pass
        print(json.dumps(sorted(sys.modules)))
    """
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    modules = json.loads(done.stdout.splitlines()[-1])

    packages = {".".join(name.split(".")[:2]) for name in modules if name.startswith("streams.")}
    assert packages <= {"streams.cli", "streams.core", "streams.files"}
    assert not {"msgspec", "numpy", "pyarrow", "rocksdict", "asyncio"} & set(modules)


def test_an_import_loads_only_the_packages_of_an_application(loaded: set[str]):
    packages = {".".join(name.split(".")[:2]) for name in loaded if name.startswith("streams.")}

    assert packages == {
        f"streams.{name}"
        for name in (
            "app", "broker", "clients", "core", "dsl", "group", "protocol", "runtime", "state", "topology",
        )
    }  # fmt: skip
