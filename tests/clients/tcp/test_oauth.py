"""OAuth tokens: from a token endpoint over HTTP to the check of the broker, and their renewal."""

from base64 import b64decode
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from streams import OAuthToken, OAuthUser
from streams.broker import EmbeddedBroker, Users
from streams.broker.tcp.authentication import Authentication
from streams.clients import Admin, Producer, Security, msk_iam
from streams.clients.errors import AuthenticationError
from streams.clients.tcp import TcpCluster
from streams.clients.tcp.credentials import Credentials
from streams.clients.tcp.security import bearer_exchange
from streams.core.blocks.records import TopicPartition
from streams.core.clock import SystemClock, VirtualClock
from streams.core.errors import BrokerError, ConfigError
from streams.core.http.oauth import claims_of
from streams.protocol.admin_messages import SaslAuthenticate, SaslHandshake
from streams.protocol.error_codes import ErrorCode
from streams.protocol.messages import TopicSpec
from tests.clients.tcp.tokens import Endpoint, secured, served, token_of
from tests.waiting import WATCHDOG_MS, until, until_raised

CLOCK = SystemClock()


def checked(token: str) -> OAuthUser:
    claims = claims_of(token)
    if not claims:
        raise ValueError("it is no JWT")
    return OAuthUser(claims["sub"], int(claims["exp"] * 1000))


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with EmbeddedBroker() as broker, broker.serve("127.0.0.1:0", users=Users(check_token=checked)) as server:
        yield server.bootstrap_servers


def by(provider: Any) -> Security:
    return Security("sasl_plaintext", "OAUTHBEARER", sasl_oauthbearer_token_provider=provider)


def test_token_of_an_endpoint_is_used_by_all_connections(servers: str):
    with served(Endpoint()) as endpoint:
        cluster = TcpCluster(servers, secured(endpoint))
        with Producer(cluster) as producer, Admin(cluster) as admin:
            admin.create_topics([TopicSpec("used", 1)])
            assert producer.send("used", b"v", partition=0).base_offset(WATCHDOG_MS) == 0
    assert endpoint.forms == [{"grant_type": ["client_credentials"], "scope": ["kafka"]}]


@pytest.mark.slow
def test_token_is_renewed_before_it_expires(servers: str):
    """Tokens live four seconds; no request runs into the end of a session, which the broker enforces."""
    with served(Endpoint(4_000)) as endpoint:
        cluster = TcpCluster(servers, secured(endpoint))
        with Producer(cluster) as producer, Admin(cluster) as admin:
            admin.create_topics([TopicSpec("renewed", 1)])
            offsets: list[int] = []

            def produce() -> None:
                offsets.append(producer.send("renewed", b"v", partition=0).base_offset(WATCHDOG_MS))
                producer.poll(50)

            until(lambda: len(endpoint.forms) >= 3, produce)
    assert offsets == list(range(len(offsets)))


def test_a_token_is_used_until_it_expires_while_it_cannot_be_renewed():
    """It is renewed from 80 % of its life on."""
    clock = VirtualClock(1_000_000)
    given: list[Any] = [OAuthToken("first", 1_010_000)]

    def provider() -> OAuthToken:
        if isinstance(given[0], OSError):
            raise given[0]
        return given[0]

    credentials = Credentials(by(provider), clock)

    def said() -> bytes:
        return next(credentials.exchange("")).split(b"\x01")[1]

    assert said() == b"auth=Bearer first"
    given[0] = OAuthToken("second", 1_020_000)
    clock.advance(7_999)
    assert said() == b"auth=Bearer first"
    given[0] = OSError("away")
    clock.advance(2_000)
    assert said() == b"auth=Bearer first"
    clock.advance(1)
    with pytest.raises(OSError, match="away"):
        said()
    given[0] = OAuthToken("second", 1_020_000)
    assert said() == b"auth=Bearer second"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sasl_oauthbearer_client_secret": "wrong"}, "answered with status 401: invalid_client no such client"),
        ({"sasl_oauthbearer_client_id": "other"}, "check sasl_oauthbearer_client_id"),
    ],
)
def test_rejection_of_the_endpoint_is_told(servers: str, changes: dict[str, str], message: str):
    with served(Endpoint()) as endpoint, Admin(TcpCluster(servers, secured(endpoint, **changes))) as admin:
        with pytest.raises(AuthenticationError, match=message):
            admin.list_topics()


def test_endpoint_that_is_away_is_asked_again(servers: str):
    with served(Endpoint()) as endpoint:
        endpoint.status = 503
        with Admin(TcpCluster(servers, secured(endpoint), hold_ms=300)) as admin:
            until_raised(BrokerError, "answered with status 503", admin.list_topics)
            until(lambda: len(endpoint.forms) > 1, partial(until_raised, BrokerError, "503", admin.list_topics))
            endpoint.status = 200
            assert admin.list_topics() is not None


def _failing() -> str:
    raise LookupError("no credentials")


@pytest.mark.parametrize(
    ("provider", "message"),
    [
        (lambda: "not.a-jwt", "the token is not accepted: it is no JWT"),
        (lambda: OAuthToken(token_of("ann"), 1), "returned a token that has expired"),
        (lambda: token_of("ann", -1_000), "returned a token that has expired"),
        (lambda: OAuthToken(token_of("ann", -1_000)), "the token has expired"),
        (lambda: 5, "returned int, not an OAuthToken"),
        (_failing, "_failing failed: LookupError: no credentials"),
    ],
)
def test_bad_token_is_told(servers: str, provider: Any, message: str):
    with Admin(TcpCluster(servers, by(provider))) as admin, pytest.raises(AuthenticationError, match=message):
        admin.list_topics()


def test_librdkafka_is_let_in_with_a_token():
    from confluent_kafka import Producer as Peer

    with EmbeddedBroker() as broker, broker.serve("127.0.0.1:0", users=Users(check_token=checked)) as server:
        broker.create_topic("t", 1)
        errors: list[Any] = []
        peer = Peer(
            {
                "bootstrap.servers": server.bootstrap_servers,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanisms": "OAUTHBEARER",
                "oauth_cb": lambda _: (token_of("peer"), CLOCK.now_ms() / 1000 + 3_600),
                "error_cb": errors.append,
            }
        )
        peer.produce("t", b"v")
        peer.flush(WATCHDOG_MS / 1000)
        assert errors == []
        assert broker.end_offset(TopicPartition("t", 0)) == 1


def test_session_goes_on_only_for_the_same_user_and_before_its_token_expires():
    """On one connection, as librdkafka and Java do (KIP-368)."""
    now_ms = [0]
    users = Users(check_token=lambda text: OAuthUser(text.partition("@")[0], int(text.partition("@")[2])))
    session = Authentication(users, now_ms=lambda: now_ms[0])

    def authenticate(token: str) -> Any:
        assert session.handshake(SaslHandshake("OAUTHBEARER"), 1).error is ErrorCode.NONE
        return session.authenticate(SaslAuthenticate(f"n,,\x01auth=Bearer {token}\x01\x01".encode()))

    assert authenticate("ann@100").session_lifetime_ms == 100
    now_ms[0] = 90
    assert authenticate("ann@200").session_lifetime_ms == 110
    assert not session.has_expired
    now_ms[0] = 200
    assert session.has_expired
    assert authenticate("bob@300").message == "authentication failed: the user of a session cannot change"
    assert session.handshake(SaslHandshake("PLAIN"), 1).mechanisms == ("OAUTHBEARER",)


def test_extensions_go_with_the_token():
    said = next(bearer_exchange(OAuthToken("abc", None, {"logicalCluster": "lkc-1"})))

    assert said == b"n,,\x01auth=Bearer abc\x01logicalCluster=lkc-1\x01\x01"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "needs sasl_oauthbearer_token_endpoint_url, sasl_oauthbearer_client_id, sasl_oauthbearer_client_secret"),
        ({"sasl_oauthbearer_token_provider": token_of, "sasl_username": "ann"}, "sasl_username would not be used"),
        ({"sasl_oauthbearer_token_provider": token_of, "sasl_oauthbearer_scope": "a"}, "scope would not be used"),
        ({"sasl_mechanism": "PLAIN", "sasl_username": "a", "sasl_oauthbearer_scope": "b"}, "set it to OAUTHBEARER"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, Any], message: str):
    with pytest.raises(ConfigError, match=message):
        Security(**{"security_protocol": "sasl_ssl", "sasl_mechanism": "OAUTHBEARER", **settings})


def test_async_provider_is_refused():
    async def provider() -> str:
        return ""

    with pytest.raises(ConfigError, match="async"):
        by(provider)


def test_msk_signs_a_token_for_its_region(monkeypatch: pytest.MonkeyPatch):
    """AWS's own library, with credentials that nobody has; the token is a signed URL."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
    monkeypatch.setenv("AWS_REGION", "eu-west-1")

    token = msk_iam()()

    assert isinstance(token, OAuthToken)
    url = b64decode(token.value.replace("-", "+").replace("_", "/") + "==").decode()
    assert url.startswith("https://kafka.eu-west-1.amazonaws.com/?Action=kafka-cluster%3AConnect")
    assert "X-Amz-Signature=" in url
    assert token.expires_ms is not None
    assert token.expires_ms > CLOCK.now_ms()
    assert token.value not in repr(token)


def test_msk_without_a_region_says_so(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("AWS_REGION", raising=False)
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    with pytest.raises(ConfigError, match="AWS_REGION"):
        msk_iam()
