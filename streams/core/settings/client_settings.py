"""The settings of connections, consumers and producers; each client has one group of settings.

Each setting is declared once, as a field with its name, type, unit, default, bounds and meaning.
``core.settings.setting`` reads the fields as a table. Names and defaults are those of Kafka; ``application=`` declares
where Kafka Streams differs. This module imports only other modules of ``core``.
"""

import re
from typing import Any, Final, Self

from attrs import fields, frozen

from streams.core.errors import ConfigError
from streams.core.settings.offset_reset import EARLIEST, LATEST, NONE, is_duration
from streams.core.settings.setting import SECRET_FORMS, changed, choice, flag, group, table_of, text, whole
from streams.core.user_code import refuse_unawaited

_MIB = 1 << 20

# A broker detects duplicates only of the last five batches of a producer and partition (KIP-98).
_MAX_IDEMPOTENT_IN_FLIGHT = 5

#: The SASL mechanism of OAuth tokens (KIP-255, RFC 7628).
OAUTHBEARER: Final = "OAUTHBEARER"
_OF_PASSWORDS: Final = ("sasl_username", *(f"sasl_password{form}" for form in SECRET_FORMS))
_OF_OIDC: Final = (
    "sasl_oauthbearer_token_endpoint_url",
    "sasl_oauthbearer_client_id",
    *(f"sasl_oauthbearer_client_secret{form}" for form in SECRET_FORMS),
    "sasl_oauthbearer_scope",
)
#: Kafka's form of the name and the value of an extension; "auth" is the token itself (KIP-342).
_EXTENSION: Final = re.compile(r"(?!auth=)[A-Za-z]+=[\x21-\x7E \t\r\n]+")


def _is_provider(name: str, value: Any) -> bool:
    if callable(value):
        refuse_unawaited(value, f"setting {name!r}", error=ConfigError)
    return callable(value)


def _check_extensions(value: str) -> None:
    for part in value.split(",") if value else ():
        if not _EXTENSION.fullmatch(part.strip()):
            raise ConfigError(
                f"setting 'sasl_oauthbearer_extensions': {part.strip()!r} is not NAME=VALUE with a name of letters "
                "other than 'auth'"
            )


def _check_heartbeats(interval_ms: int, session_ms: int) -> None:
    if interval_ms >= session_ms:
        raise ConfigError(
            f"heartbeat_interval_ms ({interval_ms}) must be less than session_timeout_ms ({session_ms}); "
            "a third of it is usual"
        )


class _Replaceable:
    """Settings that are made and changed by name."""

    __slots__ = ()

    @classmethod
    def of(cls, **settings: Any) -> Self:
        """Parse and validate settings in the same way as ``StreamsConfig.of``.

        Raises:
            ConfigError: a name is unknown, a value is invalid, or settings contradict each other.
        """
        return changed(cls(), settings)

    def replace(self, **settings: Any) -> Self:
        """Return a copy with other values, which are validated as in ``of``."""
        return changed(self, settings)


@frozen(kw_only=True)
class ConnectionSettings:
    """Settings for the connections to a cluster."""

    reconnect_backoff_ms: int = whole(50, "ms", "First pause before a new connection.")
    reconnect_backoff_max_ms: int = whole(1_000, "ms", "Longest pause before a new connection.")
    connections_max_idle_ms: int = whole(540_000, "ms", "After how long an unused connection is closed.")
    connect_timeout_ms: int = whole(
        10_000, "ms", "How long a connection may take to be made, TLS and authentication included.", of_client=True
    )
    hold_ms: int = whole(
        15_000, "ms", "How long a request that any broker can serve waits until one is reachable.", of_client=True
    )


@frozen
class Security:
    """Security settings of a connection; the field names are the names of the settings.

    With TLS, the certificate of the broker must be valid for the host name and issued by a certificate authority
    in ``ssl_ca_location`` (if empty: one that the operating system trusts).

    Raises:
        ConfigError: a setting is invalid, or would have no effect.
    """

    security_protocol: str = choice(
        "plaintext", ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl"), "How connections are secured."
    )
    sasl_mechanism: str = choice(
        "PLAIN", ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", OAUTHBEARER), "Mechanism of SASL authentication."
    )
    sasl_username: str = text("", "User name for SASL.")
    sasl_password: str = text("", "Password for SASL.", is_secret=True)
    ssl_ca_location: str = text("", "File of the certificates to trust; empty = the system's.")
    ssl_certificate_location: str = text("", "File of the client's certificate; empty = none.")
    ssl_key_location: str = text("", "File of the client's private key.")
    ssl_key_password: str = text("", "Password of an encrypted private key.", is_secret=True)
    ssl_key_password_file: str = text("", "File of which the first line is ssl_key_password.", is_shown=False)
    ssl_key_password_command: str = text(
        "", "Command, without a shell, whose first line is ssl_key_password.", is_shown=False
    )
    sasl_password_file: str = text(
        "", "File of which the first line is sasl_password; read for each connection.", is_shown=False
    )
    sasl_password_command: str = text(
        "",
        "Command, without a shell, whose first line is sasl_password; run once, and again after a rejection.",
        is_shown=False,
    )
    sasl_oauthbearer_token_provider: Any = choice(  # noqa: RUF009 - frozen.
        "oidc",
        ("oidc", "msk_iam"),
        "Where OAUTHBEARER tokens come from: oidc = the token endpoint, msk_iam = AWS (extra `msk`), or a function "
        "that returns an `OAuthToken` or the text of a JWT.",
        takes_function=_is_provider,
    )
    sasl_oauthbearer_token_endpoint_url: str = text("", "Token endpoint for OIDC client credentials (KIP-768).")
    sasl_oauthbearer_client_id: str = text(
        "", "Client id for the token endpoint.", aliases=("sasl_oauthbearer_client_credentials_client_id",)
    )
    sasl_oauthbearer_client_secret: str = text(
        "",
        "Client secret for the token endpoint.",
        is_secret=True,
        aliases=("sasl_oauthbearer_client_credentials_client_secret",),
    )
    sasl_oauthbearer_client_secret_file: str = text(
        "", "File of which the first line is sasl_oauthbearer_client_secret; read for each token.", is_shown=False
    )
    sasl_oauthbearer_client_secret_command: str = text(
        "",
        "Command, without a shell, whose first line is sasl_oauthbearer_client_secret; run for each token.",
        is_shown=False,
    )
    sasl_oauthbearer_scope: str = text("", "Scope that is asked of the token endpoint; empty = none.")
    sasl_oauthbearer_extensions: str = text(
        "", "SASL extensions that go with each token (KIP-342), NAME=VALUE, comma-separated.", check=_check_extensions
    )

    def __attrs_post_init__(self) -> None:
        table = table_of(Security)
        for name in ("security_protocol", "sasl_mechanism", "sasl_oauthbearer_token_provider"):
            table[name].parse(getattr(self, name))
        for secret in (name for name, row in table.items() if row.is_secret):
            if len(forms := [name for form in SECRET_FORMS if getattr(self, name := secret + form)]) > 1:
                raise ConfigError(f"{' and '.join(forms)}: give one of them")
        if self.has_sasl:
            self._check_sasl()
        kinds = [kind for kind, is_used in (("sasl", self.has_sasl), ("ssl", self.has_tls)) if not is_used]
        unused = [name for name in self.changed_names() if name.partition("_")[0] in kinds]
        if unused:
            raise ConfigError(
                f"{', '.join(unused)} would not be used: security_protocol is {self.security_protocol!r}; set it to "
                f"{'sasl_ssl or sasl_plaintext' if unused[0].startswith('sasl') else 'ssl or sasl_ssl'}"
            )

    def _check_sasl(self) -> None:
        set_names = self.changed_names()
        if not self.has_tokens:
            if not self.sasl_username:
                raise ConfigError(f"security_protocol={self.security_protocol!r} needs sasl_username and sasl_password")
            unused = [name for name in set_names if name.startswith("sasl_oauthbearer_")]
            usual = "OAUTHBEARER"
        else:
            self._check_tokens(set_names)
            unused = [name for name in set_names if name in _OF_PASSWORDS]
            usual = "PLAIN or SCRAM-SHA-512"
        if unused:
            raise ConfigError(
                f"{', '.join(unused)} would not be used: sasl_mechanism is {self.sasl_mechanism!r}; set it to {usual}"
            )

    def _check_tokens(self, set_names: list[str]) -> None:
        if self.sasl_oauthbearer_token_provider != "oidc":
            if unused := [name for name in set_names if name in _OF_OIDC]:
                raise ConfigError(
                    f"{', '.join(unused)} would not be used: they are for sasl_oauthbearer_token_provider='oidc'"
                )
            return
        missing = [name for name in _OF_OIDC[:2] if name not in set_names]
        if not any(name.startswith("sasl_oauthbearer_client_secret") for name in set_names):
            missing.append("sasl_oauthbearer_client_secret (or ..._file, ..._command)")
        if missing:
            raise ConfigError(
                f"sasl_mechanism={OAUTHBEARER!r} needs {', '.join(missing)}; or give a function as "
                "sasl_oauthbearer_token_provider"
            )

    def changed_names(self) -> list[str]:
        """Return the names of the settings that differ from their defaults."""
        return [part.name for part in fields(type(self)) if getattr(self, part.name) != part.default]

    @property
    def has_tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.security_protocol in ("ssl", "sasl_ssl")

    @property
    def has_sasl(self) -> bool:
        """Whether the client authenticates with SASL."""
        return self.security_protocol in ("sasl_plaintext", "sasl_ssl")

    @property
    def has_tokens(self) -> bool:
        """Whether the client authenticates with OAuth tokens."""
        return self.sasl_mechanism == OAUTHBEARER


@frozen(kw_only=True)
class ClientSettings:
    """The settings that consumers and producers have in common."""

    request_timeout_ms: int = whole(30_000, "ms", "How long to wait for a response.", minimum=1)
    retry_backoff_ms: int = whole(
        100, "ms", "First pause before a retry; that of a producer doubles up to the maximum."
    )
    metadata_max_age_ms: int = whole(300_000, "ms", "How often to look for new topics and partitions.")


@frozen(kw_only=True)
class ConsumerSettings(_Replaceable):
    """The validated settings of a ``Consumer``, with Kafka's defaults. Create them with ``of``.

    >>> ConsumerSettings.of(max_poll_records="100").max_poll_records
    100
    """

    client_id: str = text("consumer", "Name of the client in a broker's logs and groups.", of_client=True)
    auto_offset_reset: str = choice(
        "latest",
        (EARLIEST, LATEST, NONE),
        "Where to begin in a partition without a committed offset; none = an error. A duration goes back from now "
        "(KIP-1106).",
        takes_text=is_duration,
        example="by_duration:PT1H",
        application={
            "default": "earliest",
            "doc": "Where a live run begins in an input partition without a committed offset, unless the source has "
            "its own `offset_reset`; none = an error. A duration goes back from now (KIP-1106).",
        },
    )
    enable_auto_commit: bool = flag(
        True, "Whether positions are committed periodically and when partitions are revoked.", of_client=True
    )
    auto_commit_interval_ms: int = whole(5_000, "ms", "Interval between automatic commits.", of_client=True)
    max_poll_records: int = whole(
        500,
        "records",
        "Maximum number of records that one poll returns.",
        minimum=1,
        application={
            "default": 10_000,
            "doc": "Maximum number of records of one poll (Kafka Streams: 1,000; blocks make more cheap).",
        },
    )
    max_poll_interval_ms: int = whole(
        300_000, "ms", "Maximum time between polls; after it, the member leaves the group.", minimum=1
    )
    group_protocol: str = choice(
        "classic",
        ("classic", "consumer"),
        "consumer = the broker assigns the partitions (KIP-848, Kafka 4.0), and sets session_timeout_ms and "
        "heartbeat_interval_ms; assignors are those of the broker.",
        of_client=True,
    )
    group_remote_assignor: str = text(
        "",
        "Assignor of the broker with group_protocol=consumer, such as uniform or range; empty = the broker's default.",
        of_client=True,
    )
    session_timeout_ms: int = whole(
        45_000, "ms", "Time without a heartbeat after which a member is removed from the group.", minimum=1
    )
    heartbeat_interval_ms: int = whole(3_000, "ms", "How often a member sends a heartbeat.", minimum=1)
    background_heartbeat: bool = flag(
        False,
        "Whether a thread sends heartbeats while the application is busy for longer than its session lasts; it still "
        "has to poll within max_poll_interval_ms.",
        of_client=True,
    )
    group_instance_id: str = text(
        "", "Name of a static member, which may restart without a rebalance; empty = dynamic.", takes_none=True
    )
    fetch_max_records: int = whole(
        10_000,
        "records",
        "Most records prefetched of each partition of a broker in this process; over TCP bytes bound it.",
        minimum=1,
        of_client=True,
    )
    fetch_max_wait_ms: int = whole(500, "ms", "Maximum time that the broker waits for records.")
    fetch_max_bytes: int = whole(50 * _MIB, "bytes", "Maximum size of a fetch response.", minimum=1)
    max_partition_fetch_bytes: int = whole(_MIB, "bytes", "Maximum size per partition of a fetch response.", minimum=1)
    client_rack: str = text(
        "",
        "Rack or zone of this client, as the brokers name theirs (broker.rack); brokers with a replica selector then "
        "let it read from a replica nearby (KIP-392); empty = read from leaders.",
    )
    isolation_level: str = choice(
        "read_uncommitted",
        ("read_uncommitted", "read_committed"),
        "read_committed leaves out the records of aborted transactions and waits for open ones.",
        application={
            "doc": "Whether open and aborted transactions of other applications are read; exactly_once_v2 never "
            "reads them.",
        },
    )
    default_api_timeout_ms: int = whole(60_000, "ms", "How long calls without a timeout wait.", of_client=True)
    allow_auto_create_topics: bool = flag(
        True, "Whether a metadata request may create a missing topic, if the broker allows it.", of_client=True
    )
    client: ClientSettings = group(ClientSettings)  # noqa: RUF009 - frozen.

    def check_membership(self) -> None:
        """Check that the group timeouts are consistent.

        Raises:
            ConfigError: the heartbeat interval is not shorter than the session timeout.
        """
        _check_heartbeats(self.heartbeat_interval_ms, self.session_timeout_ms)


@frozen(kw_only=True)
class ProducerSettings(_Replaceable):
    """The validated settings of a ``Producer``, with Kafka's defaults. Create them with ``of``.

    Raises:
        ConfigError: settings contradict each other.
    """

    client_id: str = text("producer", "Name of the client in a broker's logs.", of_client=True)
    linger_ms: int = whole(
        0,
        "ms",
        "How long a batch may wait for more records; above 0 a thread sends it then.",
        application={
            "doc": "How long a record waits for others to share its batch (Kafka Streams: 100); runs are blocks anyway."
        },
    )
    background_sender: bool = flag(
        True,
        "Whether a thread sends, retries and completes records that no call waits for; it starts with the first "
        "record that is not acknowledged at once.",
        of_client=True,
    )
    batch_size_bytes: int = whole(
        16 * 1024,
        "bytes",
        "Size at which a batch is sent at once.",
        minimum=1,
        aliases=("batch_size",),
        application={"default": 128 * 1024},
    )
    buffer_memory_bytes: int = whole(
        32 * _MIB,
        "bytes",
        "Memory for unsent records; a producer blocks when it is full.",
        minimum=1,
        aliases=("buffer_memory",),
    )
    max_block_ms: int = whole(60_000, "ms", "How long a call blocks when the buffer is full, before it fails.")
    max_request_bytes: int = whole(
        _MIB, "bytes", "Largest record or request that a producer sends.", minimum=1, aliases=("max_request_size",)
    )
    max_in_flight_requests: int = whole(
        5,
        "requests",
        "Requests in flight to one broker; with acks other than all, one per partition, which keeps its order.",
        minimum=1,
        aliases=("max_in_flight", "max_in_flight_requests_per_connection"),
        application={"maximum": _MAX_IDEMPOTENT_IN_FLIGHT},
    )
    compression_type: str = choice("none", ("none", "gzip", "snappy", "lz4", "zstd"), "Compression of batches.")
    acks: str = choice(
        "all",
        ("all", "1", "0"),
        "Replicas that must acknowledge a record.",
        synonyms={"-1": "all"},
    )
    enable_idempotence: bool | None = flag(
        None,
        "Whether records are appended once and in order, however often they are sent; None = where acks and "
        "max_in_flight_requests allow it.",
        takes_none=True,
        of_client=True,
    )
    transactional_id: str = text(
        "",
        "Transactional id, which one producer at a time may use. Empty = none.",
        takes_none=True,
        of_client=True,
    )
    transaction_timeout_ms: int = whole(
        60_000,
        "ms",
        "Time after which the broker aborts an open transaction.",
        minimum=1,
        application={"default": 10_000},
    )
    delivery_timeout_ms: int = whole(120_000, "ms", "Maximum time from sending a record to its acknowledgement.")
    retry_backoff_max_ms: int = whole(1_000, "ms", "Longest pause before a producer's retry.")
    client: ClientSettings = group(ClientSettings)  # noqa: RUF009 - frozen.

    def __attrs_post_init__(self) -> None:
        if self.transactional_id and self.enable_idempotence is False:
            raise ConfigError(
                f"transactional_id={self.transactional_id!r} needs an idempotent producer: leave enable_idempotence on"
            )
        if (self.transactional_id or self.enable_idempotence) and not self._may_be_idempotent:
            raise ConfigError(
                "an idempotent or transactional producer needs acks='all' and max_in_flight_requests up to "
                f"{_MAX_IDEMPOTENT_IN_FLIGHT}, not acks={self.acks!r} and "
                f"max_in_flight_requests={self.max_in_flight_requests}"
            )

    @property
    def is_idempotent(self) -> bool:
        """Whether the producer is idempotent, so that the broker drops duplicates of its batches."""
        return self._may_be_idempotent and self.enable_idempotence is not False

    @property
    def _may_be_idempotent(self) -> bool:
        return self.acks == "all" and self.max_in_flight_requests <= _MAX_IDEMPOTENT_IN_FLIGHT


@frozen(kw_only=True)
class ParallelSettings:
    """The settings of a ``ParallelConsumer`` in addition to those of a ``Consumer``."""

    batch_size: int = whole(100, "records", "Maximum number of records of one call of batch_handler.", minimum=1)
    max_concurrency: int = whole(
        8,
        "handlers",
        "Maximum number of concurrent handlers; more than the number of partitions has no effect.",
        minimum=1,
    )
    max_attempts: int = whole(5, "attempts", "Maximum number of attempts per record.", minimum=1)
    retry_backoff_ms: int = whole(100, "ms", "Pause before a second attempt, doubled for each up to the maximum.")
    retry_backoff_max_ms: int = whole(10_000, "ms", "Longest pause before another attempt.")
    dead_letter_topic: str = text(
        "",
        "Topic of records whose attempts have all failed, with the error in headers; empty = the run fails.",
        takes_none=True,
    )
    max_buffered: int = whole(1_000, "records", "Buffered records of a partition above which it is paused.", minimum=1)
    commit_interval_ms: int = whole(1_000, "ms", "How often to commit.")
    drain_timeout_ms: int = whole(30_000, "ms", "How long a revocation waits for running handlers.")


@frozen(kw_only=True)
class GroupClientSettings:
    """The settings of a ``GroupClient`` and of the recipes that use it.

    Raises:
        ConfigError: the heartbeat interval is not shorter than the session timeout.
    """

    client_id: str = text("worker", "Name of the client in a broker's logs and groups.")
    group_instance_id: str = text(
        "", "Name of a static member, which may restart without a rebalance; empty = dynamic.", takes_none=True
    )
    session_timeout_ms: int = whole(
        10_000, "ms", "Time without a heartbeat after which a member is removed from the group.", minimum=1
    )
    heartbeat_interval_ms: int = whole(3_000, "ms", "How often a member sends a heartbeat.", minimum=1)
    rebalance_timeout_ms: int = whole(
        60_000, "ms", "How long members may take to revoke partitions in a rebalance.", minimum=1
    )
    retry_backoff_ms: int = whole(100, "ms", "Pause before a retry.")

    def __attrs_post_init__(self) -> None:
        _check_heartbeats(self.heartbeat_interval_ms, self.session_timeout_ms)
