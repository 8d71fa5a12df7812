"""The TCP transport to brokers: ``TcpCluster`` is a value for ``broker=``, ``Security`` configures TLS and SASL.

``cluster`` opens connections, ``connection`` chooses the channel for each request, ``channel`` is a connection to one
broker, ``sockets`` does its I/O, ``security`` authenticates.
"""

from streams.clients.tcp.cluster import TcpCluster, cluster_of
from streams.core.settings.client_settings import Security

__all__ = ["Security", "TcpCluster", "cluster_of"]
