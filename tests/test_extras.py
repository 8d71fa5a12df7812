"""An optional library that is missing gives an error that names its extra."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from streams.core.installation import pip_install

ROOT = Path(__file__).parents[1]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
#: Extras of those who work on streams.
OURS = {"test", "lint", "dev", "docs", "bench", "browser"}
#: What needs an extra, as a program.
USES = {
    "avro": "from streams.formats import avro; avro({'type': 'record', 'name': 'A', 'fields': []})",
    "protobuf": "from streams.formats import protobuf; protobuf(object)",
    "http": "from streams.lookup import HttpLookUp; HttpLookUp('http://localhost/{key}', read=int)",
    "sql": "from streams.connect import SqlSink; SqlSink('sqlite://', 'rows')",
    "postgres": "from streams.connect import PostgresSink; PostgresSink('host=nowhere', 'rows')",
    "metrics": "import streams.telemetry.prometheus",
    "otel": "import streams.telemetry.otel",
    "openlineage": "import streams.telemetry.lineage",
    "web": "import streams.web",
    "hypothesis": "from streams import Topic; from streams.testing import records; records(Topic('a', value=int))",
    "notebook": "from streams import Topic; from streams.notebook import LiveTable; LiveTable(Topic('a', value=int))",
}
PROGRAM = """
import json, sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in BLOCKED:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

BLOCKED = {"fastavro", "google", "httpx", "sqlalchemy", "psycopg", "prometheus_client", "opentelemetry", "openlineage",
           "starlette", "uvicorn", "hypothesis", "IPython"}
import streams
sys.meta_path.insert(0, Missing())
for name in [name for name in sys.modules if name.split(".")[0] in BLOCKED]:
    del sys.modules[name]
said = {}
for extra, use in json.loads(sys.argv[1]).items():
    try:
        exec(use, {})
    except Exception as error:
        said[extra] = f"{type(error).__name__}: {error}"
print(json.dumps(said))
"""


def test_a_missing_library_is_named_with_its_extra():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(USES)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)

    unnamed = [extra for extra in USES if pip_install(extra) not in said.get(extra, "")]
    assert unnamed == [], said
    assert {text.partition(":")[0] for text in said.values()} == {"ConfigError"}


def test_no_page_names_a_package_of_an_index():
    pages = [path for folder in ("docs", "topology_examples") for path in (ROOT / folder).rglob("*.[mp][dy]")]

    assert [path for path in pages if re.search(r"pip install '?streams\b", path.read_text())] == []


def test_every_extra_is_in_the_guide():
    page = (ROOT / "docs" / "guide" / "projects.md").read_text().split("### Extras")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (`.*?) \|", page, re.MULTILINE)

    assert sorted(re.findall(r"`([\w-]+)`", " ".join(rows))) == sorted(EXTRAS.keys() - OURS)


@pytest.mark.parametrize("extra", sorted(EXTRAS.keys() - OURS))
def test_every_extra_is_named_by_an_error_of_the_product(extra):
    sources = "".join(path.read_text() for path in (ROOT / "streams").rglob("*.py"))

    assert f"{{pip_install('{extra}')}}" in sources
