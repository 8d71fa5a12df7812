"""Dead letters go back, and an application is reset, on the embedded broker, over TCP to it, and on a real Kafka."""

import signal

import pytest

from streams import Consumer, Producer
from streams.clients import EARLIEST, Admin, DeadLetters, GroupNotEmptyError
from streams.core.blocks.records import TopicPartition
from streams.core.dead_letters import error_headers
from streams.protocol.messages import TopicSpec
from streams.runtime import ResetPlan, ResetTarget
from tests import programs


@pytest.fixture
def topics(cluster, name):
    """A source topic of two partitions, and a dead letter topic with three letters of its second partition."""
    source, dead = f"{name}.lines", f"{name}.dead"
    with Admin(cluster) as admin:
        admin.create_topics([TopicSpec(source, 2), TopicSpec(dead, 1)])
    headers = error_headers(ValueError("no number"), source, 1, 0, "parse")
    with Producer(cluster) as producer:
        for number in range(3):
            producer.send(dead, b"%d" % number, key=b"k", headers=headers, partition=0)
    return source, dead


def values(cluster, topic):
    return [(letter.partition.partition, letter.value) for letter in DeadLetters(cluster, topic).letters()]


def test_each_letter_goes_back_once(cluster, topics):
    source, dead = topics
    letters = DeadLetters(cluster, dead)

    letters.redrive(lambda letter: letter.offset == 1)
    letters.redrive(batch=1)
    letters.redrive()

    assert values(cluster, source) == [(1, b"1"), (1, b"0"), (1, b"2")]


@pytest.mark.kafka
@pytest.mark.parametrize("cluster", ["kafka"], indirect=True)
def test_redrive_killed_before_any_step_sends_each_letter_once(cluster, kafka, topics):
    source, dead = topics
    deaths = 0
    while True:
        given = (kafka.bootstrap_servers, dead, str(deaths))
        ended = programs.run(["-m", "tests.clients.redriving", *given])
        if ended.returncode == 0:
            break
        assert ended.returncode == -signal.SIGKILL, ended.stderr
        deaths += 1

    assert values(cluster, source) == [(1, b"0"), (1, b"1"), (1, b"2")]
    assert deaths == 9


def test_application_is_reset_when_it_has_no_members(cluster, topics):
    source, _ = topics
    application = source.removesuffix(".lines")
    output = f"{application}.sums"
    place, written = TopicPartition(source, 0), TopicPartition(output, 0)
    made = [output, f"{application}-sums-changelog", f"{application}x-changelog"]
    with Admin(cluster) as admin, Consumer(cluster, application, auto_offset_reset="earliest") as member:
        admin.create_topics([TopicSpec(topic, 1) for topic in made])
        with Producer(cluster) as producer:
            for topic in (source, output):
                producer.send(topic, b"a", partition=0)
        member.subscribe([source])
        while not member.poll(100):
            pass
        member.commit_sync()
        plan = ResetPlan.of(admin, application, ResetTarget(to=EARLIEST), outputs=[output])
        with pytest.raises(GroupNotEmptyError):
            plan.execute(admin)
        assert admin.committed_offsets(application)[place].offset == 1

        plan.execute(admin, force=True)

        assert admin.committed_offsets(application)[place].offset == 0
        assert f"{application}-sums-changelog" not in admin.list_topics()
        assert f"{application}x-changelog" in admin.list_topics()
        assert admin.list_offsets({place: EARLIEST, written: EARLIEST}) == {place: 0, written: 1}
