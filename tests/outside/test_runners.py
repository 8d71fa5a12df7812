"""What is read from the runners of others: Go's tests and pytest."""

import json
import socket
import sys
from pathlib import Path

import pytest

from tests.kafka.proxy import Proxy
from tests.outside.gotests import run_tests
from tests.outside.listed import Listed
from tests.outside.pytests import run_pytest
from tests.outside.suite import Room, Suite, UnavailableError
from tests.outside.suites.kgo import cause
from tests.ports import free_ports


@pytest.fixture
def room(tmp_path):
    return Room(Suite(name="x", title="X", version="1", origin="", run=lambda room: iter(())), tmp_path, Listed())


def go_that_says(room, monkeypatch, *events):
    """Put a program `go` on the PATH that says these events and ends with status 1, as Go's does after a failure."""
    lines = "\n".join(json.dumps(event) for event in events)
    script = room.cache / "bin" / "go"
    script.parent.mkdir()
    script.write_text(f"#!/bin/sh\necho $* >{room.cache}/asked\ncat <<'END'\n{lines}\nEND\nexit 1\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{script.parent}:/bin:/usr/bin")


def event(action, test, **more):
    return {"Action": action, "Test": test, **more}


def test_subtests_stand_for_their_test_and_names_may_have_slashes(room, monkeypatch):
    events = [event("run", "A"), event("run", "A/b"), event("run", 'A/c/""')]
    ends = [event("pass", "A/b"), event("output", 'A/c/""', Output="no such thing\n"), event("fail", 'A/c/""')]
    go_that_says(room, monkeypatch, *events, *ends, event("fail", "A"), event("run", "S"), event("skip", "S"))

    outcomes = [(it.test, it.result, it.note) for it in run_tests(room, Path("t"), room.cache)]

    assert outcomes == [("A/b", "passed", ""), ('A/c/""', "failed", "no such thing"), ("S", "left out", "")]
    # At the end of its time Go panics, as if a test had failed, before the room says that the time is over.
    assert "-test.timeout=0" in (room.cache / "asked").read_text().split()


def test_a_test_without_an_end_has_failed_with_the_panic(room, monkeypatch):
    events = [event("run", "A"), event("pass", "A"), event("run", "B"), event("output", "B", Output="panic: gone\n")]
    go_that_says(room, monkeypatch, *events)

    first, last = run_tests(room, Path("t"), room.cache)

    assert (first.test, first.result) == ("A", "passed")
    assert (last.test, last.result) == ("B", "failed")
    assert "panic: gone" in last.note


def test_a_program_without_tests_leaves_the_suite_out(room, monkeypatch):
    go_that_says(room, monkeypatch)

    with pytest.raises(UnavailableError, match="did not start"):
        list(run_tests(room, Path("t"), room.cache))


def test_pytest_says_each_outcome_with_its_reason(room):
    text = """
import os, pytest
def test_good(): print("x", end="")
def test_bad(): assert 1 == 2
@pytest.mark.skip(reason="no Docker")
def test_skipped(): pass
@pytest.fixture
def broken():
    yield
    raise ValueError("in its end")
def test_around(broken): pass
def test_gone(): os._exit(3)
"""
    (room.cache / "test_it.py").write_text(text)

    outcomes = {
        it.test.partition("::")[2]: (it.result, it.note) for it in run_pytest(room, Path(sys.executable), room.cache)
    }

    assert outcomes["test_good"] == ("passed", "")
    assert outcomes["test_bad"] == ("failed", "assert 1 == 2")
    assert outcomes["test_skipped"] == ("left out", "no Docker")
    assert outcomes["test_around"] == ("failed", "ValueError: in its end")
    assert outcomes["test_gone"] == ("failed", "no end: 3")


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("x_test.go:9: unexpected etl produce err: EOF: no\\n", "gave up: unexpected etl produce err: EOF: no"),
        ("unable to delete group: EOF\\n", "gave up: no end"),
        (
            "unable to flush: EOF\\n c: saw double offset t x p1o2 (txn #1)\\n",
            "wrong records: saw double offset t x p1o2 (txn",
        ),
        ("unable to flush: EOF\\n c: saw double offset t x p1o2\\n", "gave up: unable to flush: EOF"),
        ("x: consumers 3: got 99 keys != exp 100\\n", "wrong records: got 99 keys"),
        ("x: partition 0 produced offsets out of order, got 4 != exp 5\\n", "wrong records: out of order, got "),
        (
            "x: unexpected produce err: EOF\\n x: partition 0 produced offsets out of order, got -1 != exp 5\\n",
            "gave up: unexpected produce err: EOF",
        ),
        (
            "unable to flush: EOF\\n c: unexpected produce err: OUT_OF_ORDER_SEQUENCE_NUMBER: The broker\\n",
            "lost its producer: OUT_OF_ORDER_SEQUENCE_NUMBER",
        ),
    ],
)
def test_a_client_that_gave_up_is_told_from_wrong_records(said, shown):
    assert cause(said) == shown


def test_connections_wait_for_a_broker_that_is_away():
    (port,) = free_ports(1)
    with Proxy(port, is_patient=True) as proxy, socket.create_connection(("127.0.0.1", proxy.port)) as client:
        client.sendall(b"x")
        with socket.create_server(("127.0.0.1", port)) as server:
            server.settimeout(20)
            connection, _ = server.accept()
            with connection:
                assert connection.recv(1) == b"x"
