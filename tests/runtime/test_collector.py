"""The garbage collector while instances run: what an instance froze is released, what the process froze is not."""

import gc

from streams.runtime.instance import collector
from tests import programs

PROGRAM = """
import gc
from streams.runtime.instance import collector

gc.unfreeze()
before = gc.get_threshold()
collector.tune()
collector.tune()
collector.restore()
print(gc.get_freeze_count() > 1000, gc.get_threshold() > before)
collector.restore()
print(gc.get_freeze_count(), gc.get_threshold() == before)
"""


def test_existing_objects_are_frozen_until_the_last_instance_is_closed():
    assert programs.run(["-c", PROGRAM], check=True).stdout.splitlines() == ["True True", "0 True"]


def test_objects_that_the_process_froze_itself_stay_frozen():
    """As those of the parent that a process was forked from, which the end of the process would otherwise copy."""
    mine = [object()]
    gc.freeze()
    before = gc.get_threshold()

    collector.tune()
    thresholds = gc.get_threshold()
    collector.restore()

    assert (thresholds, gc.get_threshold()) == ((100_000, 50, 1000), before)
    # The collector lists all objects but frozen ones.
    assert not any(found is mine for found in gc.get_objects())


EMBEDDED = """
import gc, threading
from streams import State, Streams, StreamsBuilder, Topic

lines = Topic("lines", value=str)

def topology(builder: StreamsBuilder) -> None:
    builder.stream(lines).for_each(lambda key, line: None)

gc.unfreeze()
before = gc.get_threshold()
is_running = threading.Event()
with Streams(topology, application_id="app", on_state=lambda new, old: new is State.RUNNING and is_running.set()):
    is_running.wait()  # The collector is paused while a topology is compiled.
    print(gc.isenabled(), gc.get_freeze_count(), gc.get_threshold() == before)
"""


def test_collector_of_a_program_that_embeds_an_application_is_left_alone():
    assert programs.run(["-c", EMBEDDED], check=True).stdout.splitlines() == ["True 0 True"]


RUN = """
import gc, os, signal
from streams import State, StreamsBuilder, Topic, run

lines = Topic("lines", value=str)

def topology(builder: StreamsBuilder) -> None:
    builder.stream(lines).for_each(lambda key, line: None)

def on_state(new: State, old: State) -> None:
    if new is State.RUNNING:
        print(gc.get_freeze_count() > 1000, gc.get_threshold() > before)
        os.kill(os.getpid(), signal.SIGTERM)

gc.unfreeze()
before = gc.get_threshold()
run(topology, application_id="app", on_state=on_state)
"""


def test_collector_is_tuned_where_the_process_is_given_to_the_application():
    assert programs.run(["-c", RUN], check=True).stdout.splitlines() == ["True True"]
