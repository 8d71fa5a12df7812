"""``streams connect``: connectors of a file, from start to end, and what is refused."""

import re
import signal
from contextlib import contextmanager

import psycopg
import pytest

from streams.broker import EmbeddedBroker
from streams.clients import Producer
from streams.core.topic import Topic
from tests import programs
from tests.waiting import until

TOTALS = Topic("totals", key=str, value=int)
SCRIPT = """\
from streams import StreamsBuilder, Topic

totals = Topic("totals", key=str, value=int, partitions=2)
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "shop.py").write_text(SCRIPT)
    return tmp_path


@pytest.fixture
def served():
    with EmbeddedBroker(auto_create_topics=False) as broker, broker.serve("127.0.0.1:0") as server:
        yield broker, server.bootstrap_servers


@contextmanager
def started(folder, *arguments):
    """Start ``streams connect``, and kill it where the test fails."""
    command = ["-m", "streams", "connect", "shop.toml", *arguments]
    with (folder / "messages").open("w") as messages:
        program = programs.start(command, cwd=folder, stderr=messages.fileno())
    with program:
        try:
            yield program
        finally:
            program.kill()


def connect(folder, text, *arguments):
    """Run ``streams connect`` with a file to its end: (status, messages)."""
    (folder / "shop.toml").write_text(text)
    done = programs.run(["-m", "streams", "connect", "shop.toml", *arguments], cwd=folder)
    return done.returncode, done.stderr


def sink(servers, dsn, more="", table="totals", topic='"shop.py:totals"'):
    return f"""\
bootstrap_servers = "{servers}"

[sinks.to-postgres]
kind = "postgres"
topic = {topic}
dsn = {dsn}
table = "{table}"
create = true
{more}
"""


def rows(dsn, query):
    with psycopg.connect(dsn) as connection:
        return connection.execute(query).fetchall()


@pytest.mark.slow
def test_the_sinks_of_a_file_run_until_a_signal_and_go_on_after_it(folder, served, database):
    broker, servers = served
    (folder / "dsn").write_text(f"{database}\n")
    second = """
[sinks.history]
kind = "postgres"
topic = {name = "totals", key = "str", value = "int"}
dsn = {command = ["cat", "dsn"]}
table = "history"
mode = "append"
create = true
"""
    text = sink(servers, '{file = "dsn"}', "worker = {batch_ms = 5}" + second)
    (folder / "shop.toml").write_text(text)
    for number in range(2):
        with started(folder, "--progress", "1") as program, Producer(broker) as producer:
            # The command makes the topic, since it has a number of partitions.
            until(lambda: "totals" in broker.topics())
            producer.send(TOTALS, number, key="a")
            producer.flush()
            seen = (folder / "messages").read_text
            until(lambda number=number: _answer(database, "select value from totals") == [(number,)], seen=seen)
            until(lambda number=number: len(_answer(database, "select * from history")) == number + 1, seen=seen)
            program.send_signal(signal.SIGTERM)
            assert program.wait() == 0, seen()
        messages = seen()
        assert "sinks.to-postgres: starts: PostgresSink(table='totals') <- topic totals" in messages
        assert re.search(r"sinks\.history: stopped: 1 records in 1 batches, lag 0", messages), messages
        assert database not in messages
    assert rows(database, "select value from history order by 1") == [(0,), (1,)]


def _answer(dsn, query):
    try:
        return rows(dsn, query)
    except psycopg.errors.UndefinedTable:
        return []


@pytest.mark.slow
def test_a_worker_that_fails_ends_the_command_with_its_error(folder, served, database):
    broker, servers = served
    broker.create_topic("totals", 1)
    with Producer(broker) as producer:
        producer.send(TOTALS, 1)
    with psycopg.connect(database) as connection:
        connection.execute("create table other (key text primary key)")

    status, messages = connect(folder, sink(servers, f'"{database}"'))
    assert status == 1
    assert messages.count("the record has no key") == 1
    assert "shop.toml: sinks.to-postgres: PostgresSink(table='totals'): totals-0, offset 0: the record" in messages

    status, messages = connect(folder, sink(servers, f'"{database}"', table="other").replace("create = true", ""))
    assert status == 2
    assert "shop.toml: sinks.to-postgres: PostgresSink(table='other'): the table has no column 'value'" in messages


@pytest.mark.slow
def test_the_embedded_broker_of_a_folder_is_a_cluster_too(folder, database):
    from streams.broker import EmbeddedBroker

    with EmbeddedBroker(folder / "data" / "broker") as broker, Producer(broker) as producer:
        broker.create_topic("totals", 1)
        producer.send(TOTALS, 7, key="a")
    text = sink("", f'"{database}"').replace('bootstrap_servers = ""', 'state_dir = "data"')
    (folder / "shop.toml").write_text(text)
    with started(folder) as program:
        until(lambda: _answer(database, "select * from totals") == [("a", 7)])
        program.send_signal(signal.SIGTERM)
        assert program.wait() == 0
    assert (folder / "messages").read_text().count("1 records in 1 batches") == 1


SECRET = "s3cr3t-of-ann"
GOOD = sink("127.0.0.1:1", '{file = "dsn"}')


@pytest.mark.parametrize(
    ("wrong", "right", "message"),
    [
        ("table =", "tabel =", "sinks.to-postgres: sink 'postgres' has no setting 'tabel': did you mean 'table'?"),
        ("create = true", "create = 1", "sinks.to-postgres: sink 'postgres', setting 'create': Expected `bool`"),
        ('table = "totals"', "", "sinks.to-postgres: sink 'postgres' needs the setting 'table'"),
        ('"postgres"', '"postgers"', "there is no sink of kind 'postgers': did you mean 'postgres'?"),
        ("[sinks.", "[sink.", "there is no key 'sink': did you mean 'sinks'?"),
        ("shop.py:totals", "shop.py:total", "shop.py: declares no topic 'total'; its topics are: totals"),
        ('"shop.py:totals"', '"totals"', "topic 'totals' has no types: give \"SCRIPT.py:totals\""),
        ('"shop.py:totals"', '{name = "t", value = "text"}', "topic, value: 'text' is none of str, int"),
        ('{file = "dsn"}', '{file = "dns"}', "sinks.to-postgres.dsn: 'dns' cannot be read: No such file"),
        ('{file = "dsn"}', '{command = ["false"]}', "command 'false' ended with exit status 1"),
        ("bootstrap_servers", "state_dirs", "there is no key 'state_dirs': did you mean 'state_dir'?"),
        ("create = true", "worker = {batch = 5}", "sinks.to-postgres: unknown setting 'batch'"),
        ("create = true", 'worker = {batch_ms = "x"}', "sinks.to-postgres: setting 'batch_ms': expected a whole"),
        ("create = true", "create =", "is not TOML: Invalid value (at line"),
    ],
)
def test_what_is_wrong_in_a_file_is_named(folder, monkeypatch, capsys, wrong, right, message):
    from streams.cli.program import main

    monkeypatch.chdir(folder)
    (folder / "dsn").write_text(SECRET)
    (folder / "shop.toml").write_text(GOOD)
    assert main(["connect", "shop.toml", "--explain"]) == 0
    assert capsys.readouterr().out == "shop.toml: sinks.to-postgres: the settings are valid\n"

    (folder / "shop.toml").write_text(GOOD.replace(wrong, right, 1))
    assert main(["connect", "shop.toml", "--explain"]) == 2
    found = capsys.readouterr().err
    assert found.startswith("streams: shop.toml: ")
    assert message in found


@pytest.mark.slow
def test_a_secret_is_in_no_message(folder, served):
    broker, servers = served
    broker.create_topic("totals", 1)
    (folder / "dsn").write_text(SECRET)

    status, messages = connect(folder, sink(servers, '{file = "dsn"}'), "--debug")
    assert status == 2
    assert 'missing "=" after "(secret)"' in messages
    assert SECRET not in messages
