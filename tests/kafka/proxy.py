"""A way to a server that can be cut: everything passes through, until it does not.

For tests of what clients do about lost connections.  Listens on the loopback.
"""

import selectors
import socket
import threading
from typing import Self

from attrs import define, field

_PIECE = 1 << 16


@define(eq=False)
class Proxy:
    """Passes on what comes to ``port`` to the port of the same machine that ``target`` names, and back.

    ``after_bytes`` lets each connection pass so many bytes to the server before it is cut; None = no limit.  After
    ``most_cuts`` there is no limit either.  A new connection to a server that is away is ended, or waits for it with
    ``is_patient``.
    """

    target: int
    after_bytes: int | None = None
    most_cuts: int | None = None
    is_patient: bool = False
    port: int = field(init=False)
    #: How many connections were cut.
    cuts: int = field(default=0, init=False)
    _listener: socket.socket = field(init=False)
    _selector: selectors.BaseSelector = field(factory=selectors.DefaultSelector, init=False)
    #: Each end of a connection, and the other.
    _peers: dict[socket.socket, socket.socket] = field(factory=dict, init=False)
    _passed: dict[socket.socket, int] = field(factory=dict, init=False)
    _waiting: list[socket.socket] = field(factory=list, init=False)
    _lock: threading.Lock = field(factory=threading.Lock, init=False)
    _is_refusing: bool = field(default=False, init=False)
    _is_closed: bool = field(default=False, init=False)
    _thread: threading.Thread = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_closed = True
        self._thread.join()
        self.cut()
        self._listener.close()
        self._selector.close()

    @property
    def bootstrap_servers(self) -> str:
        """What a client is given."""
        return f"127.0.0.1:{self.port}"

    def cut(self) -> None:
        """End all connections that there are, without a word."""
        with self._lock:
            for sock in list(self._peers):
                self._drop(sock)
            for client in self._waiting:
                client.close()
            self._waiting.clear()

    def refuse(self, *, is_refusing: bool = True) -> None:
        """End new connections as soon as they are made, or take them again."""
        self._is_refusing = is_refusing

    def _run(self) -> None:
        while not self._is_closed:
            for key, _ in self._selector.select(0.02):
                with self._lock:
                    if key.fileobj is self._listener:
                        self._accept()
                    else:
                        self._pass_on(key.fileobj)
            with self._lock:
                while self._waiting and self._connect(self._waiting[0]):
                    del self._waiting[0]

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        if self._is_refusing:
            client.close()
        else:
            self._waiting.append(client)

    def _connect(self, client: socket.socket) -> bool:
        """Connect a client with the server or end it; return False if it is to wait."""
        try:
            server = socket.create_connection(("127.0.0.1", self.target), timeout=1)
        except OSError:
            if not self.is_patient:
                client.close()
            return not self.is_patient
        for sock, peer in ((client, server), (server, client)):
            sock.settimeout(5)
            self._peers[sock] = peer
            self._selector.register(sock, selectors.EVENT_READ)
        self._passed[client] = 0
        return True

    def _pass_on(self, sock: object) -> None:
        if not isinstance(sock, socket.socket) or sock not in self._peers:
            return
        try:
            data = sock.recv(_PIECE)
            if data:
                self._peers[sock].sendall(data)
        except OSError:
            data = b""
        if not data:
            self._drop(sock)
        elif sock in self._passed and self.after_bytes is not None:
            self._passed[sock] += len(data)
            if self._passed[sock] > self.after_bytes and (self.most_cuts is None or self.cuts < self.most_cuts):
                self._drop(sock)

    def _drop(self, sock: socket.socket) -> None:
        peer = self._peers.pop(sock, None)
        if peer is None:
            return
        self._peers.pop(peer, None)
        self.cuts += 1
        for end in (sock, peer):
            self._passed.pop(end, None)
            self._selector.unregister(end)
            end.close()
