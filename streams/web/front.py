"""The HTTP process of an instance: it accepts connections, and passes requests to the application in batches.

In the application's process, each system call of a server releases the interpreter lock, and gets it back only after
the switch interval (5 ms) while a stream thread is busy.  So this process reads queries by key and queries of other
instances, and writes their responses.  It asks the application over one socket, with one message for all requests that
have arrived meanwhile.  A connection with any other request, or one that this parser does not accept, is passed to the
application as a whole, with the bytes read so far, and is served there.

The response may also be on another instance: then the application sends a request for that instance, and this process
sends it there and passes the response on.  So the application does nothing more for a query of another instance's key.

``streams.web.link`` runs this file as a script: it imports nothing but the standard library, and starts in
milliseconds.  It ends when the application has closed the socket, or has ended.
"""

import errno
import marshal
import os
import re
import select
import signal
import socket
import struct
import sys
import time
from collections import deque
from contextlib import suppress
from http import HTTPStatus

#: A message on the socket: its length in bytes, then a list in ``marshal`` format.
HEAD = struct.Struct("<I")
#: Largest body of a request that is read here in bytes; also the largest part of a connection that is passed on.
_MAX_BODY_BYTES = 64 << 10
#: Largest size of a request line with its headers in bytes.
_MAX_HEAD_BYTES = 32 << 10
_READ_BYTES = 64 << 10
#: Time for responses to be sent after the application has ended, in seconds.
_GRACE_S = 2
_SEGMENT = rb"[^/?#\x00-\x20\x7f-\xff]"
_REQUEST = re.compile(
    rb"(?:(GET) (/stores/%b+/keys/%b*)(?:\?([^#\x00-\x20\x7f-\xff]*))?|(POST) (/query)) HTTP/1\.1\r\n"
    rb"((?:[!#$%%&'*+.^_`|~0-9A-Za-z-]+:[^\r\n\0]*\r\n)*)\r\n" % (_SEGMENT, _SEGMENT)
)
_BEGINNINGS = (b"GET /stores/", b"POST /query ")
#: The header of forwarded queries: the application ID, so that no other application at this address answers.  The
#: response has it as well: one without it is that of another program, or a refusal, and is not passed on.
FORWARDED = b"streams-forwarded"
#: Maximum number of idle connections to one instance.
_KEPT = 32
#: Largest response of another instance in bytes.
_MAX_RELAYED_BYTES = 256 << 20
#: Headers of a response that are not passed on: this process sends its own.
_HOP = frozenset([b"connection", b"keep-alive", b"date", FORWARDED])
#: Headers that change how a connection or a body is read: such requests are read by the application.
_ELSEWHERE = frozenset([b"transfer-encoding", b"upgrade", b"expect"])
#: A socket address: family, and what ``connect`` takes.
Place = tuple[int, tuple[object, ...]]
_ResponseHead = tuple[int, list[tuple[bytes, bytes]], int, int]
_BUSY = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\n\r\n"


class _Connection:
    """A connection of a client."""

    def __init__(self, sock: socket.socket, number: int, now: float) -> None:
        self.sock = sock
        self.number = number
        #: Time at which the connection was accepted, or the last response was sent.
        self.since = now
        self.inbox = b""
        self.outbox = b""
        #: Whether a request is being answered, and whether to close the connection after that.
        self.is_asked = False
        self.is_last = False
        #: The request that is being answered, as it was sent to the application.
        self.question: tuple[object, ...] = ()
        self.ends = sock.getsockname()[:2], sock.getpeername()[:2]


class _Peer:
    """A connection to another instance."""

    def __init__(self, sock: socket.socket, place: Place, now: float) -> None:
        self.sock = sock
        self.place = place
        self.is_connected = False
        self.outbox = b""
        self.inbox = bytearray()
        #: Status and headers of the response, and where its body begins and ends in the inbox; None until it has them.
        self.head: _ResponseHead | None = None
        #: The request that it sends, and the connection of the client that waits for the response; None if idle.
        self.request = b""
        self.client: _Connection | None = None
        #: Time at which the request was begun.
        self.since = now
        #: Whether it has responded to an earlier request; the other side may close it at any time.
        self.is_used = False


class _Front:
    """The loop of the process."""

    def __init__(
        self, listening: socket.socket, link: socket.socket, passage: socket.socket, connect_s: float, answer_s: float
    ) -> None:
        #: Time limits in seconds for other instances: to connect, and to respond.
        self._connect_s = connect_s
        self._answer_s = answer_s
        self._listening = listening
        self._link = link
        self._passage = passage
        self._poll = select.epoll()
        self._by_fd: dict[int, _Connection] = {}
        self._by_number: dict[int, _Connection] = {}
        self._next = 0
        self._questions: list[tuple[object, ...]] = []
        self._link_in = b""
        self._link_out = b""
        #: Connections to pass to the application once its socket has room.
        self._leaving: deque[_Connection] = deque()
        #: Connections to other instances: all, and those without a request.
        self._peers: dict[int, _Peer] = {}
        self._kept: dict[Place, list[_Peer]] = {}
        self._now = time.monotonic()
        self._is_closing = False
        self._date_s = 0
        self._date = b""
        for sock in (listening, link, passage):
            sock.setblocking(False)
        self._poll.register(listening, select.EPOLLIN)
        self._poll.register(link, select.EPOLLIN)
        self._poll.register(passage, 0)

    def run(self, max_connections: int, idle_s: float) -> None:
        """Serve until the application closes its side of the socket."""
        listening_fd, link_fd, passage_fd = (sock.fileno() for sock in (self._listening, self._link, self._passage))
        swept = self._now
        while True:
            events = self._poll.poll(1.0)
            polled = time.monotonic()
            for fd, event in events:
                self._now = time.monotonic()
                if fd == listening_fd:
                    self._accept(max_connections)
                elif fd == link_fd:
                    if event & select.EPOLLOUT:
                        self._send_questions()
                    if event & ~select.EPOLLOUT and not self._take_answers():
                        self._end()
                        return
                elif fd == passage_fd:
                    # If the application has closed it, the other socket is closed too, and its event ends the loop.
                    self._pass_on()
                elif (connection := self._by_fd.get(fd)) is not None:
                    self._handle(connection, event)
                elif (peer := self._peers.get(fd)) is not None:
                    self._hear(peer, event)
            if polled - swept > 1:
                # What is late by then has had its turn in this poll: a slow machine is not taken for a slow peer.
                swept = polled
                self._sweep(polled, idle_s)
            if self._questions:
                batch = marshal.dumps(self._questions)
                self._questions.clear()
                self._link_out += HEAD.pack(len(batch)) + batch
                self._send_questions()

    def _sweep(self, now: float, idle_s: float) -> None:
        """Close connections that have been idle for too long, and give up requests to other instances."""
        if not self._is_closing:
            self._poll.modify(self._listening, select.EPOLLIN)
        for connection in list(self._by_fd.values()):
            if not connection.is_asked and now - connection.since > idle_s:
                self._close(connection)
        for peer in list(self._peers.values()):
            limit_s = self._answer_s if peer.is_connected else self._connect_s
            if peer.client is not None and now - peer.since > limit_s:
                self._fail(peer, "has not answered in time")

    # --- connections ------------------------------------------------------------------------

    def _accept(self, max_connections: int) -> None:
        for _ in range(64):
            try:
                sock, _ = self._listening.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE):
                    # The next sweep tries again.
                    self._poll.modify(self._listening, 0)
                return
            sock.setblocking(False)
            if len(self._by_fd) >= max_connections:
                with sock, suppress(OSError):
                    sock.send(_BUSY)
                continue
            try:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connection = _Connection(sock, self._next, self._now)
            except OSError:
                sock.close()
                continue
            self._next += 1
            self._by_fd[sock.fileno()] = self._by_number[connection.number] = connection
            self._poll.register(sock, select.EPOLLIN)

    def _handle(self, connection: _Connection, event: int) -> None:
        if event & select.EPOLLOUT:
            self._write(connection)
        if not event & ~select.EPOLLOUT:
            return
        try:
            data = connection.sock.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        connection.inbox += data
        if not data or (connection.is_asked and len(connection.inbox) > _MAX_BODY_BYTES):
            self._close(connection)
        elif not connection.is_asked:
            self._read(connection)

    def _read(self, connection: _Connection) -> None:
        """Forward the request in the inbox to the application; wait for its rest, or pass the connection on."""
        inbox = connection.inbox
        found = _REQUEST.match(inbox)
        if found is None:
            is_begun = any(inbox.startswith(text) or text.startswith(inbox) for text in _BEGINNINGS)
            if inbox and not (is_begun and b"\r\n\r\n" not in inbox and len(inbox) <= _MAX_HEAD_BYTES):
                self._leave(connection)
            return
        get, path, query, post, other_path, lines = found.groups()
        headers = []
        length = hosts = 0
        for line in lines.split(b"\r\n")[:-1]:
            name, _, value = line.partition(b":")
            name = name.lower()
            value = value.strip(b" \t")
            headers.append((name, value))
            if name == b"content-length":
                length = int(value) if value.isdigit() and len(value) < 8 and not length else _MAX_BODY_BYTES + 1
            elif name == b"connection":
                connection.is_last = value.lower() == b"close"
                if not connection.is_last and value.lower() != b"keep-alive":
                    length = _MAX_BODY_BYTES + 1
            elif name in _ELSEWHERE:
                length = _MAX_BODY_BYTES + 1
            hosts += name == b"host"
        if length > _MAX_BODY_BYTES or (length and get) or hosts != 1 or found.end() > _MAX_HEAD_BYTES:
            self._leave(connection)
            return
        end = found.end() + length
        if len(inbox) < end:
            return
        connection.inbox = inbox[end:]
        connection.is_asked = True
        connection.question = (
            connection.number,
            get or post,
            path or other_path,
            query or b"",
            headers,
            *connection.ends,
            inbox[found.end() : end],
        )
        self._questions.append((*connection.question, ""))

    def _write(self, connection: _Connection, data: bytes = b"") -> None:
        data = connection.outbox + data
        try:
            sent = connection.sock.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._close(connection)
            return
        had_rest = bool(connection.outbox)
        connection.outbox = data[sent:]
        if had_rest != bool(connection.outbox):
            self._poll.modify(connection.sock, select.EPOLLIN | (select.EPOLLOUT if connection.outbox else 0))
        if connection.outbox:
            return
        connection.since = self._now
        connection.is_asked = False
        if connection.is_last:
            self._close(connection)
        elif connection.inbox:
            self._read(connection)

    def _forget(self, connection: _Connection) -> None:
        if self._by_number.pop(connection.number, None) is not None:
            self._by_fd.pop(connection.sock.fileno())
            self._poll.unregister(connection.sock)

    def _close(self, connection: _Connection) -> None:
        self._forget(connection)
        connection.sock.close()

    # --- other instances --------------------------------------------------------------------

    def _relay(self, client: _Connection, place: Place, request: bytes) -> None:
        """Send a request to another instance; its response is passed on to the client."""
        kept = self._kept.get(place)
        if kept:
            peer = kept.pop()
            peer.client = client
            peer.request = request
            peer.outbox = request
            peer.inbox = bytearray()
            peer.head = None
            peer.since = self._now
            self._ask(peer)
            return
        try:
            sock = socket.socket(place[0], socket.SOCK_STREAM)
        except OSError as error:
            self._questions.append((*client.question, f"cannot be asked: {error.strerror}"))
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        peer = self._peers[sock.fileno()] = _Peer(sock, place, self._now)
        self._poll.register(sock, select.EPOLLIN | select.EPOLLOUT)
        peer.client = client
        peer.request = request
        peer.outbox = request
        code = sock.connect_ex(place[1])
        if code not in (0, errno.EINPROGRESS):
            self._fail(peer, f"cannot be asked: {os.strerror(code)}")

    def _ask(self, peer: _Peer) -> None:
        """Send the rest of a request to another instance."""
        had_rest = not peer.is_connected or len(peer.outbox) < len(peer.request)
        try:
            peer.outbox = peer.outbox[peer.sock.send(peer.outbox) :]
            peer.is_connected = True
        except BlockingIOError:
            pass
        except OSError as error:
            self._lose(peer, error)
            return
        if had_rest or peer.outbox:
            self._poll.modify(peer.sock, select.EPOLLIN | (select.EPOLLOUT if peer.outbox else 0))

    def _hear(self, peer: _Peer, event: int) -> None:
        if event & select.EPOLLOUT:
            self._ask(peer)
        if not event & ~select.EPOLLOUT or peer.sock.fileno() < 0:
            return
        try:
            data = peer.sock.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            self._lose(peer, error)
            return
        peer.inbox += data
        if not data or peer.client is None:
            self._lose(peer, None)
            return
        try:
            peer.head = peer.head or _head_of(peer.inbox)
        except ValueError as error:
            self._fail(peer, f"has answered {error}")
            return
        if peer.head is not None and len(peer.inbox) >= peer.head[-1]:
            self._pass_back(peer, *peer.head)

    def _pass_back(self, peer: _Peer, status: int, headers: list[tuple[bytes, bytes]], begin: int, end: int) -> None:
        """Send the response of another instance to the client."""
        body = bytes(peer.inbox[begin:end])
        if not any(name == FORWARDED for name, _ in headers):
            text = body[:300].decode(errors="replace")
            self._fail(peer, f"has refused with status {status}: {text}")
            return
        client = peer.client
        peer.client = None
        peer.is_used = True
        kept = self._kept.setdefault(peer.place, [])
        if (b"connection", b"close") in headers or len(kept) >= _KEPT:
            self._drop(peer)
        else:
            kept.append(peer)
        if client is not None and self._by_number.get(client.number) is client:
            passed = [header for header in headers if header[0] not in _HOP]
            self._write(client, self._response(client, status, passed, body))

    def _lose(self, peer: _Peer, error: OSError | None) -> None:
        """Drop a connection that has failed; repeat its request if the other side has closed it while it was idle."""
        client = peer.client
        if client is not None and peer.is_used and not peer.inbox:
            peer.client = None
            self._drop(peer)
            # The others are as old.
            for idle in self._kept.pop(peer.place, []):
                self._drop(idle)
            self._relay(client, peer.place, peer.request)
        else:
            self._fail(peer, f"cannot be asked: {(error and error.strerror) or 'it has closed the connection'}")

    def _fail(self, peer: _Peer, reason: str) -> None:
        """Drop a connection, and have the application answer the request that was sent on it."""
        client = peer.client
        peer.client = None
        self._drop(peer)
        if client is not None and self._by_number.get(client.number) is client:
            self._questions.append((*client.question, reason))

    def _drop(self, peer: _Peer) -> None:
        kept = self._kept.get(peer.place, [])
        if peer in kept:
            kept.remove(peer)
        if not kept:
            self._kept.pop(peer.place, None)
        if self._peers.pop(peer.sock.fileno(), None) is not None:
            self._poll.unregister(peer.sock)
            peer.sock.close()

    # --- the application --------------------------------------------------------------------

    def _leave(self, connection: _Connection) -> None:
        """Pass a connection to the application, which serves it from now on."""
        self._forget(connection)
        self._leaving.append(connection)
        if len(self._leaving) == 1:
            self._pass_on()

    def _pass_on(self) -> None:
        while self._leaving:
            connection = self._leaving[0]
            try:
                socket.send_fds(self._passage, [connection.inbox], [connection.sock.fileno()])
            except BlockingIOError:
                break
            except OSError:
                # The application has closed its side.
                pass
            self._leaving.popleft().sock.close()
        self._poll.modify(self._passage, select.EPOLLOUT if self._leaving else 0)

    def _send_questions(self) -> None:
        had_rest = len(self._link_out)
        try:
            sent = self._link.send(self._link_out)
        except BlockingIOError:
            sent = 0
        except OSError:
            # The application has ended; the next event of the socket reports it.
            sent = had_rest
        self._link_out = self._link_out[sent:]
        self._poll.modify(self._link, select.EPOLLIN | (select.EPOLLOUT if self._link_out else 0))

    def _take_answers(self) -> bool:
        """Send the responses that have arrived to clients; return False once the application has closed the socket."""
        try:
            data = self._link.recv(1 << 20)
        except BlockingIOError:
            return True
        except OSError:
            return False
        if not data:
            return False
        self._link_in += data
        while len(self._link_in) >= HEAD.size:
            end = HEAD.size + HEAD.unpack_from(self._link_in)[0]
            if len(self._link_in) < end:
                break
            answers = marshal.loads(self._link_in[HEAD.size : end])
            self._link_in = self._link_in[end:]
            if not answers:
                self._close_idle()
            for number, status, headers, body in answers:
                connection = self._by_number.get(number)
                if connection is None:
                    continue
                if status:
                    self._write(connection, self._response(connection, status, headers, body))
                else:
                    self._relay(connection, headers, body)
        return True

    def _response(self, connection: _Connection, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> bytes:
        if int(time.time()) != self._date_s:
            self._date_s = int(time.time())
            self._date = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(self._date_s)).encode()
        if (b"connection", b"close") in headers:
            connection.is_last = True
        elif connection.is_last or self._is_closing:
            connection.is_last = True
            headers = [*headers, (b"connection", b"close")]
        lines = b"".join(b"%b: %b\r\n" % header for header in headers)
        phrase = HTTPStatus(status).phrase.encode()
        return b"HTTP/1.1 %d %b\r\ndate: %b\r\n%b\r\n%b" % (status, phrase, self._date, lines, body)

    def _close_idle(self) -> None:
        """Accept no more connections, and close those without a request."""
        if self._listening.fileno() >= 0:
            self._poll.unregister(self._listening)
            self._listening.close()
        self._is_closing = True
        for connection in list(self._by_fd.values()):
            if not connection.is_asked:
                self._close(connection)

    def _end(self) -> None:
        """Wait for responses of other instances, and send the remaining bytes of responses that are partly sent."""
        self._listening.close()
        deadline = time.monotonic() + _GRACE_S
        while any(peer.client for peer in self._peers.values()) and (left_s := deadline - time.monotonic()) > 0:
            for fd, event in self._poll.poll(left_s):
                if (peer := self._peers.get(fd)) is not None:
                    self._hear(peer, event)
        for connection in list(self._by_fd.values()):
            if connection.outbox:
                connection.sock.settimeout(max(0.01, deadline - time.monotonic()))
                with suppress(OSError):
                    connection.sock.sendall(connection.outbox)
            connection.sock.close()


def _head_of(data: bytearray) -> "_ResponseHead | None":
    """Return status and headers of a response, and where its body begins and ends; None while headers are missing.

    Raises:
        ValueError: the bytes are not a response of this package's server.
    """
    end = data.find(b"\r\n\r\n")
    if end < 0:
        if len(data) > _MAX_HEAD_BYTES:
            raise ValueError("with more headers than expected")
        return None
    first, *lines = bytes(data[:end]).split(b"\r\n")
    headers = [(name.lower(), value.strip()) for name, _, value in (line.partition(b":") for line in lines)]
    words = first.split(b" ", 2)
    length = dict(headers).get(b"content-length", b"")
    if not (words[0] == b"HTTP/1.1" and words[1:2] and words[1].isdigit() and length.isdigit()):
        raise ValueError("what is no response of this version of streams")
    if int(length) > _MAX_RELAYED_BYTES:
        raise ValueError(f"with {int(length)} bytes")
    return int(words[1]), headers, end + 4, end + 4 + int(length)


def main() -> None:
    """Serve with the socket descriptors and limits from the command line."""
    # The application ends this process by closing its socket, after requests that are in progress.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    listening, link, passage = (socket.socket(fileno=int(text)) for text in sys.argv[1:4])
    max_connections, idle_s, connect_s, answer_s = map(float, sys.argv[4:])
    _Front(listening, link, passage, connect_s, answer_s).run(int(max_connections), idle_s)


if __name__ == "__main__":
    main()
