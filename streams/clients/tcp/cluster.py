"""A cluster reached with the Kafka protocol over TCP, for the argument ``broker=`` of clients and applications.

This module parses addresses and holds the settings shared by all connections.
"""

from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import Final, Unpack

from streams.clients.errors import error_for
from streams.clients.network import Backoff, Network
from streams.clients.tcp.channel import ChannelConfig
from streams.clients.tcp.connection import ClusterConnection, ConnectionConfig
from streams.clients.tcp.credentials import Credentials, key_password_of
from streams.clients.tcp.security import tls_context
from streams.core.clock import Clock, SystemClock
from streams.core.errors import ConfigError
from streams.core.http.address import Address, parse_address
from streams.core.notices import Notices
from streams.core.settings.client_settings import ClientSettings, ConnectionSettings, Security
from streams.core.settings.config import StreamsConfig
from streams.core.settings.setting import changed
from streams.core.settings.settings import ConnectionOptions
from streams.protocol.admin_messages import (
    ChangedConfigs,
    ConfigChange,
    ConfigOperation,
    ConfigResource,
    DescribeConfigs,
    DescribeConfigsResponse,
    IncrementalAlterConfigs,
    ResourceType,
)
from streams.protocol.error_codes import ErrorCode
from streams.protocol.request import R, RequestFor
from streams.protocol.transport import ANY_NODE, Cluster
from streams.protocol.wire.framing import MAX_FRAME_BYTES

_NO_SECURITY: Final = Security()


class TcpCluster:
    """A Kafka cluster reached over TCP.  Times are milliseconds; defaults are Kafka's.

    Kafka 2.4 and later are supported; a request that an older broker lacks raises an error with the request's name.
    The bootstrap servers are tried one after the other until one returns the list of brokers.

    Args:
        bootstrap_servers: brokers as "host:port", in a comma-separated string or a sequence.
        security: TLS and authentication; none by default.
        settings: connection settings; ``options`` are single settings by name (see the settings reference).
        request_timeout_ms: the time without any response after which a connection counts as lost; for a request
            whose response the broker may delay, the longest delay is added.
        max_request_bytes: the brokers' limit (``socket.request.max.bytes``); they close the connection on a
            larger request.

    Raises:
        ConfigError: an address, a certificate file or a setting is invalid.
    """

    def __init__(
        self,
        bootstrap_servers: str | Iterable[str],
        security: Security = _NO_SECURITY,
        *,
        settings: ConnectionSettings | None = None,
        request_timeout_ms: int | None = None,
        max_request_bytes: int = MAX_FRAME_BYTES,
        clock: Clock | None = None,
        rng: Random | None = None,
        **options: Unpack[ConnectionOptions],
    ) -> None:
        settings = changed(settings or ConnectionSettings(), options)
        self.bootstrap: Sequence[Address] = addresses(bootstrap_servers)
        self._clock: Clock = SystemClock() if clock is None else clock
        self._credentials = Credentials(security, self._clock)
        key_password = key_password_of(security) if security.has_tls else ""
        self._context = tls_context(security, key_password)
        self._request_timeout_ms = request_timeout_ms or ClientSettings().request_timeout_ms
        self._channels = ChannelConfig(
            self._request_timeout_ms,
            settings.connect_timeout_ms,
            settings.connections_max_idle_ms,
            max_request_bytes,
        )
        self._hold_ms = settings.hold_ms
        self._backoff = Backoff(settings.reconnect_backoff_ms, settings.reconnect_backoff_max_ms)
        self._rng = rng or Random()
        self._notices = Notices()

    @classmethod
    def of(cls, config: StreamsConfig) -> "TcpCluster":
        """Return the cluster for an application's settings."""
        return cls(
            config.bootstrap_servers,
            config.security,
            settings=config.connection,
            request_timeout_ms=config.client.request_timeout_ms,
        )

    def __repr__(self) -> str:
        return f"TcpCluster({','.join(map(str, self.bootstrap))!r})"

    def connect(self, client_id: str) -> ClusterConnection:
        """Open a connection for one client; sockets are opened with the first requests."""
        config = ConnectionConfig(client_id, tuple(self.bootstrap), self._channels, self._backoff, self._hold_ms)
        # Imported here, because ssl and sockets take long to import, and clients in process need neither.
        from streams.clients.tcp.sockets import SocketConfig, Sockets

        sockets = Sockets(SocketConfig(client_id, self._credentials, self._context), self._clock)
        return ClusterConnection(config, sockets, self._clock, Random(self._rng.getrandbits(64)), notices=self._notices)

    def topic_configs(self, topics: Iterable[str]) -> dict[str, Mapping[str, str]]:
        """Return all configuration entries of topics, including defaults, except for those without a value.

        Raises:
            UnknownTopicError: a topic does not exist.
            BrokerError: the broker rejects the request, or does not respond in time.
        """
        names = list(dict.fromkeys(topics))
        if not names:
            return {}
        request = DescribeConfigs([ConfigResource(ResourceType.TOPIC, name) for name in names])
        return _settings(self._ask(request, f"settings of topics {', '.join(names)}"))

    def alter_topic(self, name: str, changes: Mapping[str, str]) -> None:
        """Set configuration entries of a topic; the others are unchanged (KIP-339).

        Raises:
            UnknownTopicError: the topic does not exist.
            BrokerError: the broker rejects the request, or does not respond in time.
        """
        what = f"settings of topic {name!r}"
        configs = [ConfigChange(setting, ConfigOperation.SET, value) for setting, value in changes.items()]
        request = IncrementalAlterConfigs([ChangedConfigs(ResourceType.TOPIC, name, configs)])
        for row in self._ask(request, what).responses:
            if row.error is not ErrorCode.NONE:
                raise error_for(row.error, what, row.message)

    def _ask(self, request: RequestFor[R], what: str) -> R:
        network = Network(self.connect("topic-configs"), self._clock, request_timeout_ms=self._request_timeout_ms)
        try:
            return network.request(ANY_NODE, request, what=what)
        finally:
            network.close()


def _settings(response: DescribeConfigsResponse) -> dict[str, Mapping[str, str]]:
    by_topic: dict[str, Mapping[str, str]] = {}
    for row in response.results:
        if row.error is not ErrorCode.NONE:
            raise error_for(row.error, f"settings of topic {row.resource_name!r}", row.message)
        by_topic[row.resource_name] = {item.name: item.value for item in row.configs if item.value is not None}
    return by_topic


def addresses(servers: str | Iterable[str]) -> tuple[Address, ...]:
    """Return the parsed bootstrap servers.

    Raises:
        ConfigError: ``servers`` has no address, or an address is invalid.

    >>> [str(broker) for broker in addresses("kafka-1:9092, [::1]:9093")]
    ['kafka-1:9092', '[::1]:9093']
    """
    texts = servers.split(",") if isinstance(servers, str) else list(servers)
    brokers = tuple(
        # Kafka allows a listener name before the address.
        parse_address(text.strip().rpartition("://")[2], "bootstrap_servers: ", lowest_port=1)
        for text in texts
        if text.strip()
    )
    if not brokers:
        raise ConfigError("bootstrap_servers is empty: give host:port of a broker, several with commas between")
    return brokers


def cluster_of(
    broker: Cluster | str | None, bootstrap_servers: str | Iterable[str], security: Security | None, who: str
) -> Cluster:
    """Return the cluster for a client: ``broker``, or a new one for the bootstrap servers, which may be its text.

    Raises:
        ConfigError: neither or both of ``broker`` and ``bootstrap_servers`` are given, or ``broker`` is no broker.
    """
    servers = bootstrap_servers if isinstance(bootstrap_servers, str) else ",".join(bootstrap_servers)
    if broker is not None and servers:
        raise ConfigError(f"{who}: both broker= and bootstrap_servers= are given; give one of them")
    if isinstance(broker, str):
        return cluster_of(None, broker, security, who)
    if broker is not None and not callable(getattr(broker, "connect", None)):
        raise ConfigError(f"{who}: {broker!r} is no broker; give addresses as text")
    if broker is not None:
        if security is not None:
            raise ConfigError(f"{who}: security= goes with bootstrap_servers=; broker= is connected to as it is")
        return broker
    if not servers:
        raise ConfigError(
            f"{who} needs a broker: pass broker=EmbeddedBroker(), or bootstrap_servers='host:9092' of a Kafka cluster"
        )
    return TcpCluster(servers, security or _NO_SECURITY)
