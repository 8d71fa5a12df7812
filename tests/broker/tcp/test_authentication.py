"""Who may come in: users' files, PLAIN and SCRAM, TLS; and that nobody else does."""

import hashlib
import hmac
import ssl
import struct
from base64 import b64decode, b64encode
from contextlib import suppress

import pytest

from streams.broker import EmbeddedBroker
from streams.broker.tcp import ServerTls, Users
from streams.broker.tcp.authentication import Authentication, AuthenticationFailed
from streams.broker.tcp.users import ScramKeys
from streams.cli.http import token_of
from streams.core.errors import ConfigError
from streams.protocol.admin_messages import SaslHandshake
from streams.protocol.error_codes import ErrorCode
from tests.broker.tcp.by_hand import API_VERSIONS, METADATA, Client

HANDSHAKE, AUTHENTICATE = 17, 36


# --- the file -----------------------------------------------------------------------------


def written(folder, text):
    path = folder / "users"
    path.write_text(text)
    return path


def test_a_users_file_has_a_name_and_a_password_in_a_line(tmp_path):
    users = Users.read(written(tmp_path, "# who may come in\n\nalice:se:cret\nbob: spaced \n"))

    assert users.has("alice", "se:cret")
    assert users.has("bob", " spaced ")
    assert not users.has("alice", "se")
    assert not users.has("# who may come in", "")


@pytest.mark.parametrize("read", [Users.read, token_of, lambda path: ServerTls(path).context()])
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644])
def test_a_file_of_secrets_that_all_can_read_is_warned_of(tmp_path, caplog, mode, read):
    path = written(tmp_path, "alice:secret\n")
    path.chmod(mode)

    with suppress(ConfigError):
        read(path)

    warned = f"{path} has secrets and can be read by every user of this machine: chmod o-rwx {path}"
    assert caplog.messages == [warned] * (mode == 0o644)


def test_keys_stand_in_for_a_password(tmp_path):
    keys = ScramKeys.of("secret", "SCRAM-SHA-256", b"0123456789abcdef")
    users = Users.read(written(tmp_path, f"alice:{keys.text('SCRAM-SHA-256')}\n"))

    assert users.has("alice", "secret")
    assert not users.has("alice", "guess")
    assert users.scram("alice", "SCRAM-SHA-256") == keys


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("alice\n", "line 1: expected NAME:PASSWORD"),
        ("a:x\n\n:y\n", "line 3: expected NAME:PASSWORD"),
        ("a:x\na:y\n", "line 2: 'a' is there already"),
        ("a:SCRAM-SHA-256$4096:AAAA$short:short\n", "line 1: expected MECHANISM"),
        ("# nobody\n", "has no users"),
    ],
)
def test_a_users_file_that_says_something_else_is_refused(tmp_path, text, says):
    with pytest.raises(ConfigError, match=says.replace("$", r"\$")):
        Users.read(written(tmp_path, text))


def test_a_users_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        Users.read(tmp_path / "none")


# --- tokens -------------------------------------------------------------------------------


def begun(mechanism, users=None, nonce="server"):
    authentication = Authentication(users or Users({"alice": "secret"}), lambda: nonce)
    answer = authentication.handshake(SaslHandshake(mechanism), 1)
    assert answer.error is ErrorCode.NONE
    return authentication


def scram(authentication, name, password, mechanism, *, nonce="client", answered_nonce=None):
    """The client's side of SCRAM (RFC 5802)."""
    hash_name = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}[mechanism]
    first = f"n={name},r={nonce}"
    challenge = authentication.token(f"n,,{first}".encode()).decode()
    parts = dict(part.split("=", 1) for part in challenge.split(","))
    salted = hashlib.pbkdf2_hmac(hash_name, password.encode(), b64decode(parts["s"]), int(parts["i"]))
    unproved = f"c=biws,r={answered_nonce or parts['r']}"
    message = f"{first},{challenge},{unproved}".encode()
    key = hmac.digest(salted, b"Client Key", hash_name)
    signature = hmac.digest(hashlib.new(hash_name, key).digest(), message, hash_name)
    proof = b64encode(bytes(left ^ right for left, right in zip(key, signature, strict=True))).decode()
    answer = authentication.token(f"{unproved},p={proof}".encode())
    expected = hmac.digest(hmac.digest(salted, b"Server Key", hash_name), message, hash_name)
    assert answer == b"v=" + b64encode(expected)


def test_plain_takes_name_and_password():
    authentication = begun("PLAIN")

    assert authentication.token(b"\0alice\0secret") == b""

    assert authentication.is_done
    assert authentication.name == "alice"


@pytest.mark.parametrize("token", [b"\0alice\0guess", b"\0bob\0secret", b"bob\0alice\0secret", b"alice", b"\xff\0\0"])
def test_plain_takes_nobody_else(token):
    authentication = begun("PLAIN")

    with pytest.raises(AuthenticationFailed):
        authentication.token(token)

    assert not authentication.is_done


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_scram_proves_both_sides(mechanism):
    authentication = begun(mechanism)

    scram(authentication, "alice", "secret", mechanism)

    assert authentication.is_done


def test_scram_with_the_numbers_of_the_rfc():
    """RFC 7677, section 3."""
    keys = ScramKeys.of("pencil", "SCRAM-SHA-256", b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="))
    users = Users(keys={("SCRAM-SHA-256", "user"): keys})
    authentication = begun("SCRAM-SHA-256", users, "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")

    first = authentication.token(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO")
    final = authentication.token(
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )

    assert first == b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    assert final == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


@pytest.mark.parametrize(("name", "password"), [("alice", "guess"), ("bob", "secret")])
def test_scram_takes_nobody_else(name, password):
    authentication = begun("SCRAM-SHA-256")

    with pytest.raises(AuthenticationFailed, match="name or password is wrong"):
        scram(authentication, name, password, "SCRAM-SHA-256")


def test_scram_takes_no_proof_of_another_exchange():
    with pytest.raises(AuthenticationFailed, match="nonce"):
        scram(begun("SCRAM-SHA-256"), "alice", "secret", "SCRAM-SHA-256", answered_nonce="clientother")


def test_older_librdkafka_says_its_nonce_twice():
    scram(begun("SCRAM-SHA-256"), "alice", "secret", "SCRAM-SHA-256", answered_nonce="clientclientserver")


@pytest.mark.parametrize(
    "token", [b"", b"n,,", b"n,,n=alice", b"p=tls-unique,,n=alice,r=x", b"\xff\xfe", b"n,a=bob,n=alice,r=x"]
)
def test_what_is_no_scram_token_is_refused(token):
    with pytest.raises(AuthenticationFailed):
        begun("SCRAM-SHA-256").token(token)


def test_an_unknown_name_looks_like_any_other():
    """The same name gets the same salt again, so nobody learns from it who is known."""
    users = Users({"alice": "secret"})

    salts = {begun("SCRAM-SHA-256", users).token(b"n,,n=nobody,r=x") for _ in range(3)}

    assert len(salts) == 1


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_names_that_are_not_known_have_salts_and_iterations_as_those_that_are(mechanism):
    """Else a name with 8,192 iterations, or a salt of 24 bytes, would be one that is known."""
    stored = ScramKeys.of("secret", mechanism, bytes(24), 8_192)
    users = Users({"bob": "secret"}, {(mechanism, "alice"): stored})

    forms = {(len(keys.salt), keys.iterations) for keys in (users.scram(f"u{n}", mechanism) for n in range(100))}

    assert forms == {(24, 8_192), (16, 4_096)}


def test_salts_stay_the_same_over_restarts(tmp_path):
    """Those of stored keys do: a salt that changes would tell that the name is not known."""

    def challenge():
        with EmbeddedBroker(tmp_path) as broker, broker.serve("127.0.0.1:0", users={"alice": "secret"}) as server:
            with Client(server.bootstrap_servers) as client:
                client.call(HANDSHAKE, 1, mechanism="SCRAM-SHA-256")
                answer = client.call(AUTHENTICATE, 1, auth_bytes=b"n,,n=nobody,r=x")["auth_bytes"]
                return answer.decode().split(",")[1:]

    assert challenge() == challenge()


def test_a_password_is_checked_against_stored_keys_and_passwords_alike():
    stored = ScramKeys.of("kept", "SCRAM-SHA-512", bytes(16))
    users = Users({"alice": "secret"}, {("SCRAM-SHA-512", "bob"): stored})

    assert users.has("alice", "secret")
    assert users.has("bob", "kept")
    assert not (users.has("alice", "kept"))
    assert not (users.has("bob", "secret"))
    assert not (users.has("carol", "secret"))


def test_users_do_not_show_their_secrets():
    assert "secret" not in repr(Users({"alice": "secret"}))


def test_keys_with_too_many_iterations_are_refused(tmp_path):
    text = ScramKeys.of("secret", "SCRAM-SHA-256", bytes(16)).text("SCRAM-SHA-256").replace("4096", "2000000")

    with pytest.raises(ConfigError, match="iterations are 1 to 1000000"):
        Users.read(written(tmp_path, f"alice:{text}\n"))


# --- over a connection --------------------------------------------------------------------


@pytest.fixture
def server(broker):
    return broker.serve("127.0.0.1:0", users={"alice": "secret"})


def log_in(client, token=b"\0alice\0secret", version=1):
    assert client.call(HANDSHAKE, 1, mechanism="PLAIN")["error_code"] == 0
    return client.call(AUTHENTICATE, version, auth_bytes=token)


def test_nothing_is_answered_before_a_client_is_in_but_what_it_needs_for_that(client, caplog):
    assert client.call(API_VERSIONS, 0)["error_code"] == 0
    client.send(METADATA, 8, topics=None)

    assert client.is_closed
    assert "sent Metadata before it was authenticated" in caplog.text


@pytest.mark.parametrize("version", [0, 1])
def test_who_is_in_is_served(client, version):
    assert log_in(client, version=version)["error_code"] == 0

    assert client.produce("words", b"a")["base_offset"] == 0


def test_who_is_not_is_told_so_and_put_out(client):
    answer = log_in(client, b"\0alice\0guess")

    assert answer["error_code"] == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert answer["error_message"] == "authentication failed: name or password is wrong"
    assert client.is_closed


def test_an_unknown_mechanism_is_answered_with_those_there_are(client):
    answer = client.call(HANDSHAKE, 1, mechanism="GSSAPI")

    assert answer["error_code"] == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert answer["mechanisms"] == ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


def test_after_a_handshake_of_version_0_tokens_come_bare(client):
    client.call(HANDSHAKE, 0, mechanism="PLAIN")
    token = b"\0alice\0secret"
    client.raw(struct.pack(">i", len(token)) + token)

    assert client.frame() == b""
    assert client.produce("words", b"a")["base_offset"] == 0


def test_a_bare_token_that_is_wrong_ends_the_connection(client):
    client.call(HANDSHAKE, 0, mechanism="PLAIN")
    client.raw(struct.pack(">i", 5) + b"guess")

    assert client.is_closed


def test_a_token_without_a_handshake_is_refused(client):
    assert client.call(AUTHENTICATE, 1, auth_bytes=b"\0alice\0secret")["error_code"]
    assert client.is_closed


def test_a_listener_without_users_knows_no_authentication(broker):
    with broker.serve("127.0.0.1:0") as server, Client(server.bootstrap_servers) as client:
        client.send(HANDSHAKE, 1, mechanism="PLAIN")
        assert client.is_closed


# --- TLS ----------------------------------------------------------------------------------


def test_tls_is_spoken(broker, certificate):
    context = ssl.create_default_context(cafile=certificate / "cert.pem")
    files = {"tls_cert": certificate / "cert.pem", "tls_key": certificate / "key.pem"}
    with broker.serve("localhost:0", **files, users={"alice": "secret"}) as server:

        def wrap(plain):
            return context.wrap_socket(plain, server_hostname="localhost")

        with Client(server.bootstrap_servers, wrap) as client:
            log_in(client)
            assert client.produce("words", bytes(500_000))["base_offset"] == 0
            assert client.fetch("words")["high_watermark"] == 1
            (found,) = client.call(METADATA, 8, topics=[])["brokers"]
            assert found["host"] == "localhost"


def test_who_speaks_no_tls_is_put_out(broker, certificate):
    files = {"tls_cert": certificate / "cert.pem", "tls_key": certificate / "key.pem"}
    with broker.serve("127.0.0.1:0", **files) as server, Client(server.bootstrap_servers) as client:
        client.send(API_VERSIONS, 0)
        assert client.is_closed


def test_a_certificate_that_is_none_is_named(broker, tmp_path):
    (tmp_path / "cert.pem").write_text("nothing")

    with pytest.raises(ConfigError, match="TLS certificate"):
        broker.serve("127.0.0.1:0", tls_cert=tmp_path / "cert.pem")
    with pytest.raises(ConfigError, match="without its certificate"):
        broker.serve("127.0.0.1:0", tls_key=tmp_path / "cert.pem")
