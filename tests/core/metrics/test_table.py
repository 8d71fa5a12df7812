"""The table of metrics: one declaration for each."""

from collections import Counter

from streams.core.metrics import SENSORS, Stat


def test_no_metric_is_declared_twice_for_the_same_group_and_tags():
    declared = Counter((metric.name, spec.scope.group, spec.scope.tags) for spec in SENSORS for metric in spec.metrics)

    assert [found for found, count in declared.items() if count > 1] == []


def test_names_end_as_their_statistic():
    endings = {Stat.RATE: "-rate", Stat.TOTAL: "-total", Stat.SUM: "-total", Stat.AVG: "-avg", Stat.MAX: "-max"}
    endings |= {Stat.MIN: "-min", Stat.RATIO: "-ratio", Stat.P50: "-p50", Stat.P99: "-p99"}
    wrong = [
        metric.name
        for spec in SENSORS
        for metric in spec.metrics
        if metric.stat in endings
        and not metric.name.endswith((endings[metric.stat], "-hit-ratio" if metric.stat is Stat.AVG else "-"))
    ]

    assert wrong == []


def test_current_values_stand_alone_since_they_are_read_together():
    assert all(len(spec.metrics) == 1 for spec in SENSORS if spec.metrics[0].stat in (Stat.VALUE, Stat.TEXT))
