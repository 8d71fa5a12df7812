"""Rates are counts over virtual time, in simulated applications with faults too."""

import pytest
from attrs import evolve

from streams.core.metrics import Stat
from streams.testing.simulation.world import Conditions, Scenario, World
from tests.testing.simulation.worlds import ONE, word_count

DAY_MS = 86_400_000


@pytest.mark.case
@pytest.mark.parametrize("seed", range(2))
def test_rates_are_totals_over_the_virtual_time_since_the_sensor_was_made(seed: int) -> None:
    rows = [(topic, *row) for topic, found in ONE.items() for row in found]
    settings = {"metrics_sample_window_ms": DAY_MS, "metrics_recording_level": "debug"}
    scenario = Scenario(word_count, rows, settings, {"words": 2, "counts": 2}, 20_000, False)
    world = World(seed, scenario, evolve(Conditions.drawn(seed, scenario), machines=3))
    began_ms = world.scheduler.clock.monotonic_ms()
    _, violation = world.run()
    assert violation is None
    now_ms = world.scheduler.clock.monotonic_ms()

    checked = set()
    for metrics in (metrics for machine in world.machines.values() for metrics in machine.past):
        for spec, _, sensor in metrics.sensors():
            rates = [metric for metric in spec.metrics if metric.stat is Stat.RATE]
            total = sensor.read(Stat.TOTAL, now_ms)
            if rates and total:
                # No rate is over less than a second. A second later, the same count is over one second more.
                age_s, later_s = (total / sensor.read(Stat.RATE, now_ms + more_ms) for more_ms in (1_000, 2_000))
                assert later_s == pytest.approx(age_s + 1)
                assert 1 <= age_s <= (now_ms - began_ms) / 1_000 + 1
                checked |= {metric.name for metric in rates}
    assert checked >= {
        "process-rate",
        "poll-rate",
        "commit-rate",
        "records-consumed-rate",
        "record-send-rate",
        "put-rate",
    }
