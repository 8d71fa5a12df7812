"""What Maven says of classes of tests becomes outcomes; a class that does not end has one, too."""

import sys
from pathlib import Path

import pytest

from tests.outside.listed import Listed
from tests.outside.suite import Outcome, Room, Suite
from tests.outside.suites import kafka_streams, kafka_streams_kip1071

MAVEN = """\
#!{python}
import sys
from pathlib import Path

[build] = [Path(a.partition("=")[2]) for a in sys.argv if a.startswith("-Dbuild.folder=")]
package = "org.apache.kafka.streams.integration."
[protocol] = [a for a in sys.argv if a.startswith("-Dgroup.protocol=")]
print(protocol, sys.argv[-1], file=open(build.parent / "asked", "a"))
if sys.argv[-1].startswith("-Dtest="):
    print(f"[INFO] Running {{package}}HangsTest")
    print(f"[INFO] Running {{package}}ATest")
    (build / "surefire-reports").mkdir(parents=True)
    (build / "surefire-reports" / f"TEST-{{package}}ATest.xml").write_text(f'''<testsuite>
        <testcase name="a(boolean)[2]" classname="{{package}}ATest"/>
        <testcase name="b" classname="{{package}}ATest"><failure message="not&#10; so"/></testcase>
        <testcase name="c" classname="{{package}}ATest"><error>no broker</error></testcase>
        <testcase name="d" classname="{{package}}ATest"><skipped message="for want of it"/></testcase>
        <testcase name="e" classname="{{package}}ATest"><skipped message="void ATest.e() is @Disabled"/></testcase>
        </testsuite>''')
    print(f"[ERROR] Tests run: 5, Failures: 2 <<< FAILURE! -- in {{package}}ATest")
    print(f"[INFO] Running {{package}}LastTest")
"""


@pytest.mark.parametrize(
    ("suite", "protocol"), [(kafka_streams.SUITE, ""), (kafka_streams_kip1071.SUITE, "streams")], ids=["", "kip1071"]
)
def test_what_maven_says_becomes_outcomes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suite: Suite, protocol: str):
    maven = tmp_path / "mvn"
    maven.write_text(MAVEN.format(python=sys.executable))
    maven.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

    outcomes = list(suite.run(Room(suite, tmp_path, Listed(left_out={"XTest": "why", "YTest.y": "why"}))))

    assert outcomes == [
        Outcome("XTest", "left out"),
        Outcome("YTest.y", "left out"),
        Outcome("HangsTest", "failed", "no end in 1800 s"),
        Outcome("ATest.a[2]", "passed"),
        Outcome("ATest.b", "failed", "not so"),
        Outcome("ATest.c", "failed", "no broker"),
        Outcome("ATest.d", "left out", "for want of it"),
        Outcome("ATest.e", "left out", "disabled by Kafka itself"),
        Outcome("LastTest", "failed", "no end in 1800 s"),
    ]
    assert (tmp_path / "asked").read_text().splitlines() == [
        f"-Dgroup.protocol={protocol} test-compile",
        f"-Dgroup.protocol={protocol} -Dtest=*Test,!XTest,!YTest#y",
    ]


def test_some_classes_come_without_those_that_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    maven = tmp_path / "mvn"
    maven.write_text(MAVEN.format(python=sys.executable))
    maven.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    room = Room(kafka_streams.SUITE, tmp_path, Listed(left_out={"XTest": "why"}), "ATest,LastTest")

    assert Outcome("XTest", "left out") not in list(kafka_streams.SUITE.run(room))
    assert (tmp_path / "asked").read_text().splitlines()[-1] == "-Dgroup.protocol= -Dtest=ATest,LastTest,!XTest"
