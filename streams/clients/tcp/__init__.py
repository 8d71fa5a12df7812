"""The way to brokers over TCP: ``TcpCluster`` is what ``broker=`` takes, ``Security`` how connections are secured.

``cluster`` opens connections, ``connection`` finds the socket for each request, ``channel`` is one socket,
``security`` says who we are.
"""

from streams.clients.tcp.cluster import TcpCluster, cluster_of
from streams.core.client_settings import Security

__all__ = ["Security", "TcpCluster", "cluster_of"]
