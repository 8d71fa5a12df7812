"""Metrics as Prometheus text, with the names that the JMX exporter gives to the metrics of Kafka Streams.

Names are ``kafka_streams_`` (of clients ``kafka_consumer_``, ``kafka_producer_``) + group + name, and tags are labels,
with ``_`` in place of ``-``, so that existing dashboards work. Text metrics are labels of
``kafka_streams_stream_metrics``, as in the common exporter rules. Needs the extra ``metrics``.
"""

from collections.abc import Iterable, Iterator, Sequence

from attrs import frozen

from streams.core.errors import ConfigError
from streams.core.installation import pip_install
from streams.core.metrics import Metric, Metrics, MetricSpec, Scope, SensorSpec, Stat

try:
    from prometheus_client import generate_latest
    from prometheus_client.core import Metric as Family
    from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
except ImportError as error:
    raise ConfigError(f"Prometheus metrics need prometheus-client: {pip_install('metrics')}") from error

#: The media type of ``render``.
CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
_TEXTS = "kafka_streams_stream_metrics"
#: Text metrics that are too long for a label.
_LEFT_OUT = ("topology-description",)


def _legal(name: str) -> str:
    return name.replace("-", "_").replace(".", "_")


def _name(scope: Scope, name: str) -> str:
    return _legal(f"{scope.domain}-{scope.group}-{name}")


def name_of(spec: SensorSpec, metric: MetricSpec) -> str:
    """Return the name under which a metric is exported."""
    if metric.stat is Stat.TEXT:
        return _TEXTS
    return _name(spec.scope, metric.name)


def families(metrics: Iterable[Metric]) -> Iterator[Family]:
    """Yield metrics as metric families of ``prometheus_client``."""
    by_name: dict[str, Family] = {}
    for metric in metrics:
        labels = {_legal(tag): text for tag, text in metric.tags.items()}
        if isinstance(metric.value, str):
            if metric.name not in _LEFT_OUT:
                family = by_name.setdefault(_TEXTS, Family(_TEXTS, "Texts, as labels.", "unknown"))
                family.add_sample(_TEXTS, labels | {_legal(metric.name): metric.value}, 1)
            continue
        name = _name(metric.scope, metric.name)
        family = by_name.get(name) or by_name.setdefault(name, _family(name, metric.spec))
        family.add_sample(name, labels, metric.value)
    yield from by_name.values()


def _family(name: str, spec: MetricSpec) -> Family:
    unit = f" ({spec.unit})" if spec.unit else ""
    text = f"{spec.description[0].upper()}{spec.description[1:]}{unit}."
    if spec.stat in (Stat.TOTAL, Stat.SUM):
        # ``prometheus_client`` adds ``_total`` to the name of a counter.
        return Family(name.removesuffix("_total"), text, "counter")
    return Family(name, text, "gauge")


@frozen(eq=False)
class Collector:
    """A collector for ``prometheus_client``: ``REGISTRY.register(Collector([app.metrics]))``."""

    sources: Sequence[Metrics]

    def collect(self) -> Iterable[Family]:
        """Return the current metrics as metric families."""
        return families(metric for source in self.sources for metric in source.collect())


def render(*sources: Metrics) -> bytes:
    """Return the metrics of an application, or of several, in the Prometheus text format 0.0.4 (``CONTENT_TYPE``)."""
    return generate_latest(Collector(sources))
