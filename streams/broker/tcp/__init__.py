"""The broker over TCP: Kafka's protocol for clients in other processes and other languages.

``server`` listens, in a thread with a loop of its own; a ``connection`` takes frames and answers them in order;
``requests`` says which answer belongs to which request, with ``records`` for those that are hot and
``administration`` for those of which the machine has no message; ``authentication`` and ``users`` know who
may come in.  The machine itself is the one that clients in this process talk to.
"""

from streams.broker.limits import Limits
from streams.broker.tcp.address import Address, parse_address
from streams.broker.tcp.server import BrokerServer, tls_context
from streams.broker.tcp.users import Users

__all__ = ["Address", "BrokerServer", "Limits", "Users", "parse_address", "tls_context"]
