"""Members of groups when a folder is opened again: who lived in the process that had it open is gone."""

import os
import signal
import subprocess
import textwrap

import pytest

from streams import Consumer, EmbeddedBroker, TopicPartition
from streams.clients.network import Network
from streams.core.clock import SystemClock
from streams.protocol.group_messages import DescribeGroup
from streams.protocol.transport import ANY_NODE
from tests import programs, waiting

WORKER = textwrap.dedent(
    """
    import sys
    from streams import Consumer, EmbeddedBroker

    with EmbeddedBroker(sys.argv[1]) as broker:
        if "words" not in broker.topics():
            broker.create_topic("words", partitions=2)
        with broker.serve("127.0.0.1:0") as server:
            inside = Consumer(broker, "inside", group_instance_id=sys.argv[2] or None)
            outside = Consumer(bootstrap_servers=server.bootstrap_servers, group_id="outside")
            for consumer in (inside, outside):
                consumer.subscribe(["words"])
                while not consumer.assignment():
                    consumer.poll(10)
            print("joined", flush=True)
            sys.stdin.read()
    """
)


def members(broker, group):
    network = Network(broker.connect("admin"), SystemClock())
    try:
        return network.request(ANY_NODE, DescribeGroup(group)).members
    finally:
        network.close()


def killed(folder, instance=""):
    """Run a process with a broker and two members, and kill it."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    process = programs.start(["-c", WORKER, str(folder), instance], **pipes)
    assert process.stdout.readline() == "joined\n"
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()


@pytest.mark.parametrize("instance", ["", "static"])
def test_members_of_the_killed_process_are_out_and_those_over_tcp_keep_their_session(tmp_path, instance):
    killed(tmp_path, instance)

    with EmbeddedBroker(tmp_path) as broker:
        assert members(broker, "inside") == ()
        [outside] = members(broker, "outside")
        with Consumer(broker, "inside", group_instance_id=instance or None) as consumer:
            consumer.subscribe(["words"])
            waiting.until(consumer.assignment, lambda: consumer.poll(10))

            assert consumer.assignment() == {TopicPartition("words", 0), TopicPartition("words", 1)}
        assert members(broker, "outside") == (outside,)


def test_private_broker_puts_all_members_of_its_predecessor_out(tmp_path):
    killed(tmp_path)

    with EmbeddedBroker(tmp_path, is_private=True) as broker:
        assert members(broker, "inside") == members(broker, "outside") == ()


def test_members_of_a_broker_that_was_closed_are_out_as_well(tmp_path):
    with EmbeddedBroker(tmp_path) as broker:
        broker.create_topic("words")
        consumer = Consumer(broker, "inside")
        consumer.subscribe(["words"])
        while not consumer.assignment():
            consumer.poll(10)
    for _ in range(2):
        with EmbeddedBroker(tmp_path) as broker:
            assert members(broker, "inside") == ()
