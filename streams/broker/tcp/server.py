"""The server that ``EmbeddedBroker.serve`` returns: a thread with its own event loop."""

import logging
import os
from typing import TYPE_CHECKING

from attrs import field, frozen

from streams.broker.driver import Driver
from streams.broker.logs.limits import Limits
from streams.broker.tcp.users import Users
from streams.core.closeable import Closeable
from streams.core.concurrency.threads import SystemThreads, Worker
from streams.core.errors import BrokerError, ConfigError
from streams.core.folders import warn_if_public
from streams.core.http.address import Address, is_loopback

if TYPE_CHECKING:
    from ssl import SSLContext

_LOGGER = logging.getLogger(__name__)


class BrokerServer(Closeable):
    """A listening broker server; as a context manager, it is closed on exit.

    ``host`` and ``port`` are the bound address; ``bootstrap_servers`` is the advertised address, or one that clients
    on this machine can use.
    """

    def __init__(
        self,
        driver: Driver,
        listen: Address,
        *,
        advertise: Address | None = None,
        tls: "SSLContext | None" = None,
        users: Users | None = None,
        limits: Limits | None = None,
    ) -> None:
        # Imported here, because asyncio and ssl take long to import, and a broker in process needs neither.
        from streams.broker.tcp.listener import Listener
        from streams.broker.tcp.tcp_service import TcpService

        self.host, self.port = listen
        self._protocol = ("SASL_" if users else "") + ("SSL" if tls else "PLAINTEXT")
        threads = SystemThreads()
        self._has_started = threads.signal()
        self._has_ended = threads.signal()
        self._failure: Exception | None = None
        self._listener = Listener(TcpService(driver, listen, limits or Limits(), users, advertise), tls)
        self._worker: Worker = threads.start("broker-server", self._main)
        self._has_started.wait()
        if self._failure is not None:
            raise self._failure

    @property
    def address(self) -> str:
        """The bound address as HOST:PORT."""
        return str(Address(self.host, self.port))

    @property
    def is_loopback(self) -> bool:
        """Whether the server can only be reached from this machine."""
        return is_loopback(self.host)

    @property
    def bootstrap_servers(self) -> str:
        """The advertised HOST:PORT; the host is the loopback address if the server listens on every address."""
        return str(self._listener.service.advertised(Address("127.0.0.1", self.port)))

    @property
    def is_open(self) -> bool:
        """Whether the server has not ended."""
        return not self._has_ended.is_set()

    @property
    def advertised_listener(self) -> str:
        """The advertised address with its protocol, such as ``SASL_SSL://host:9092``."""
        return f"{self._protocol}://{self.bootstrap_servers}"

    def close(self) -> None:
        """Stop accepting connections, send pending responses, and close all connections; the broker stays open."""
        if self.is_open:
            self._listener.stop()
        if not self._worker.is_current:
            self._worker.join()

    def wait(self, timeout_ms: int | None = None) -> bool:
        """Wait up to ``timeout_ms`` milliseconds (None: no limit) for the server to end; return whether it has ended.

        Raises:
            BrokerError: the server has failed.
        """
        has_ended = self._has_ended.wait(timeout_ms)
        if has_ended and self._failure is not None:
            raise BrokerError(
                f"the server on {self.bootstrap_servers} has failed: {self._failure!r}"
            ) from self._failure
        return has_ended

    def _main(self) -> None:
        from asyncio import run

        try:
            run(self._listener.run(self._started))
        except Exception as error:
            self._failure = self._named(error)
            if self._has_started.is_set():
                _LOGGER.exception("the server on %s has failed", self.bootstrap_servers)
        finally:
            self._has_ended.set()
            self._has_started.set()

    def _started(self, address: Address) -> None:
        self.host, self.port = address
        self._has_started.set()

    def _named(self, error: Exception) -> Exception:
        if isinstance(error, OSError) and not self._has_started.is_set():
            address = Address(self.host, self.port)
            reason = error.strerror or str(error)
            return ConfigError(
                f"cannot listen on {address}: {reason}; choose another address, or port 0 for a free one"
            )
        return error


@frozen
class ServerTls:
    """The TLS files of a listener, all PEM.

    ``key`` may be in the same file as the certificate chain ``cert`` (then None).  ``key_password`` is the password of
    an encrypted key.  With ``client_ca``, clients need a certificate that one of its authorities has issued, as with
    Kafka's ``ssl.client.auth=required``.
    """

    cert: str | os.PathLike[str]
    key: str | os.PathLike[str] | None = None
    key_password: str = field(default="", repr=False)
    client_ca: str | os.PathLike[str] | None = None

    def context(self) -> "SSLContext":
        """Return the TLS context of the listener.

        Raises:
            ConfigError: the files do not contain a certificate chain, the matching key and authorities, or the
                password is wrong.
        """
        from ssl import CERT_REQUIRED, PROTOCOL_TLS_SERVER, SSLContext, SSLError, TLSVersion

        context = SSLContext(PROTOCOL_TLS_SERVER)
        context.minimum_version = TLSVersion.TLSv1_2
        try:
            # Without a password, OpenSSL would ask for one at the terminal.
            warn_if_public(self.key or self.cert)
            context.load_cert_chain(self.cert, self.key, lambda: self.key_password)
        except (OSError, SSLError) as error:
            raise ConfigError(f"TLS certificate {self.cert} with key {self.key or self.cert}: {error}") from error
        if self.client_ca is not None:
            context.verify_mode = CERT_REQUIRED
            try:
                context.load_verify_locations(self.client_ca)
            except (OSError, SSLError) as error:
                raise ConfigError(f"TLS: authorities of clients {self.client_ca}: {error}") from error
        return context
