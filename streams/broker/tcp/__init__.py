"""The broker over TCP: the Kafka protocol for clients in other processes and other languages.

``server`` listens in a thread with its own event loop; a ``connection`` reads frames and responds in order;
``requests`` translates between frames and broker messages; ``authentication`` and ``users`` verify
credentials.  The broker is the same one that clients in this process use.
"""

from streams.broker.logs.limits import Limits
from streams.broker.tcp.server import BrokerServer, ServerTls
from streams.broker.tcp.users import Users
from streams.core.http.address import Address, parse_address

__all__ = ["Address", "BrokerServer", "Limits", "ServerTls", "Users", "parse_address"]
