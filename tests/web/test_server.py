"""The HTTP server of an application: where it listens, how long it lives, what its paths answer."""

import asyncio
import socket

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from streams import ConfigError, EmbeddedBroker, Streams
from streams.web import app as app_of
from tests.web.conftest import FAST, counting, running, send, until, words


def app(broker: EmbeddedBroker, **settings: object) -> Streams:
    return Streams(counting, application_id="app", broker=broker, **FAST | settings)


def test_a_server_made_before_the_start_tells_the_state_from_then_to_the_end(broker, client):
    streams = app(broker)
    server = streams.serve("127.0.0.1:0")

    assert client.get(f"{server.url}/live").json()["ok"]
    assert client.get(f"{server.url}/ready").status_code == 503
    refused = client.get(f"{server.url}/stores/kept/keys/a")
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
    with streams:
        until(lambda: client.get(f"{server.url}/ready").status_code == 200)
        assert client.get(f"{server.url}/live").json()["state"] == "RUNNING"
        assert client.get(f"{server.url}/progress").json()["ok"]
    with pytest.raises(httpx.ConnectError):
        client.get(f"{server.url}/live")


def test_a_server_ends_on_its_own_and_the_application_goes_on(broker, client):
    with running(broker) as streams:
        with streams.serve("127.0.0.1:0") as server:
            assert client.get(f"{server.url}/live").json()["ok"]
        with pytest.raises(httpx.ConnectError):
            client.get(f"{server.url}/live")
        with streams.serve("[::1]:0") as server:
            assert server.url.startswith("http://[::1]:")
            # The others are told where this instance is, with a rebalance.
            until(lambda: client.get(f"{server.url}/ready").json()["ok"])


@pytest.mark.parametrize("address", ["nowhere", ":80", "127.0.0.1:x", "127.0.0.1:99999"])
def test_an_address_that_is_none_is_refused(broker, address):
    with pytest.raises(ConfigError, match="is not host:port"):
        app(broker).serve(address)


def test_an_address_that_is_taken_is_refused(broker):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        with pytest.raises(ConfigError, match=r"cannot listen at 127.0.0.1:.*in use"):
            app(broker).serve(f"127.0.0.1:{taken.getsockname()[1]}")


def test_other_machines_are_served_only_with_a_token(broker):
    with pytest.raises(ConfigError, match="other machines: give a token"):
        app(broker).serve("0.0.0.0:0")


def test_a_key_is_answered_with_its_value_and_what_is_not_there_is_named(broker, client):
    with running(broker) as streams, streams.serve("127.0.0.1:0") as server:
        send(broker, words, [("ann", "x"), ("ann", "y"), ("a/b ü", "z")])
        until(lambda: client.get(f"{server.url}/stores/kept/keys/a%2Fb%20%C3%BC").status_code == 200)
        until(lambda: client.get(f"{server.url}/stores/kept/keys/ann").json().get("value") == 2)

        found = client.get(f"{server.url}/stores/kept/keys/ann").json()
        assert (found["store"], found["key"], found["value"], found["timestamp"]) == ("kept", "ann", 2, 1)
        for path, reason in {
            "/stores/kept/keys/nobody": "NO_SUCH_KEY",
            "/stores/nope/keys/ann": "NO_SUCH_STORE",
            "/stores/kept/keys/a/b": "NO_SUCH_PATH",
            "/stores/kept/nothing": "NO_SUCH_PATH",
            "/nothing": "NO_SUCH_PATH",
        }.items():
            missing = client.get(server.url + path)
            assert (missing.status_code, missing.json()["error"]) == (404, reason)
        assert client.get(f"{server.url}/stores").json()["stores"]


def test_a_failed_application_is_not_live(broker, client):
    def failing(builder):
        builder.stream(words).map_values(lambda value: int(value)).group_by_key().count("kept")

    streams = Streams(failing, application_id="app", broker=broker, **FAST)
    server = streams.serve("127.0.0.1:0")
    streams.start()
    send(broker, words, [("a", "no number")])

    until(lambda: client.get(f"{server.url}/live").status_code == 503)
    found = client.get(f"{server.url}/live").json()
    assert found["failure"] == "ProcessingError"
    assert "no number" not in str(found)
    with pytest.raises(Exception, match=r"MAPVALUES"):
        streams.close()


def test_the_application_can_be_mounted_in_another_one(broker):
    with running(broker) as streams:
        send(broker, words, [("a/b", "x")])
        until(lambda: streams.store("kept").get("a/b"))
        outer = Starlette(routes=[Mount("/shop", app_of(streams, token="s3cret"))])

        async def ask():
            transport = httpx.ASGITransport(outer)
            async with httpx.AsyncClient(transport=transport, base_url="http://shop.example/shop") as client:
                assert (await client.get("/ready")).json()["ok"]
                assert (await client.get("/stores/kept/keys/a%2Fb")).json()["value"] == 1
                assert [entry["key"] for entry in (await client.get("/stores/kept/range")).json()["entries"]] == ["a/b"]
                assert (await client.get("/nothing")).json()["error"] == "NO_SUCH_PATH"
                assert (await client.post("/anything")).status_code == 401

        asyncio.run(ask())
