"""Look-ups over HTTP: keys with any characters, what is not found, failures, and clients per event loop."""

import asyncio
import gc
import pickle
import sys
import warnings
from collections import Counter
from datetime import timedelta
from typing import Any

import httpx
import pytest

from streams import ConfigError, StreamsError
from streams.lookup import HttpLookUp
from tests.lookup.service import Service
from tests.waiting import WATCHDOG_S

KEYS = ["ann", "a b", "a/b", "../x", "a?b=c&d", "#", "%2F", "ü€", "{key}", "+", ";"]


def text_of(response: Any) -> str:
    return str(response.json()["asked"])


def asked(url: str, *keys: Any, **options: Any) -> list[str | None]:
    look_up: HttpLookUp[Any, str] = HttpLookUp(url, read=text_of, **options)

    async def ask() -> list[str | None]:
        return [await look_up(key) for key in keys]

    return asyncio.run(ask())


@pytest.mark.parametrize("form", ["/customers/{key}", "/customers/{key}/city?x=1", "/customers?id={key}"])
def test_key_of_any_characters_reaches_the_service(form: str) -> None:
    with Service() as service:
        assert asked(service.url + form, *KEYS) == KEYS
        assert asked(service.url + form, 7, b"a/b") == ["7", "a/b"]


def test_key_that_names_nothing_in_a_path_is_not_found_without_a_request() -> None:
    with Service() as service:
        assert asked(service.url + "/customers/{key}", "", ".", "..", b"") == [None] * 4
        assert service.asked == Counter()
        assert asked(service.url + "/customers?id={key}", "", "..") == ["", ".."]


@pytest.mark.parametrize("status", [404, 410])
def test_missing_resource_is_not_found(status: int) -> None:
    with Service(lambda key, number: (status, 0)) as service:
        assert asked(service.url + "/customers/{key}", "ann") == [None]


def test_response_that_is_too_large_is_an_error_with_the_remedy() -> None:
    with Service() as service:
        url = service.url + "/customers/{key}"
        size = len(httpx.get(url.format(key="ann"), timeout=WATCHDOG_S).content)
        assert asked(url, "ann", max_bytes=size) == ["ann"]
        with pytest.raises(StreamsError, match=rf"customers/ann has more than {size - 1} bytes; .* max_bytes"):
            asked(url, "ann", max_bytes=size - 1)


@pytest.mark.parametrize("limit", [0, -1, 1.5, True, None])
def test_limit_of_responses_must_be_a_number(limit: Any) -> None:
    with pytest.raises(ConfigError, match="max_bytes must be an int of at least 1"):
        HttpLookUp("http://localhost/{key}", read=text_of, max_bytes=limit)


@pytest.mark.parametrize("status", [302, 400, 500, 503])
def test_other_statuses_are_errors(status: int) -> None:
    with Service(lambda key, number: (status, 0)) as service, pytest.raises(httpx.HTTPStatusError, match=str(status)):
        asked(service.url + "/customers/{key}", "ann")


def test_service_that_does_not_answer_in_time_is_an_error() -> None:
    with Service(lambda key, number: (200, None)) as service, pytest.raises(httpx.TimeoutException):
        asked(service.url + "/customers/{key}", "ann", timeout=timedelta(milliseconds=20))


def test_each_event_loop_has_a_client_that_is_closed_with_it() -> None:
    with Service() as service:
        look_up: HttpLookUp[str, str] = HttpLookUp(service.url + "/customers/{key}", read=text_of)

        async def ask() -> str | None:
            return await look_up("ann")

        gc.collect()  # What earlier tests have left.
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert [asyncio.run(ask()), asyncio.run(ask())] == ["ann", "ann"]
            gc.collect()
        assert not [str(warning.message) for warning in caught]
        assert not look_up._clients
        assert asyncio.run(pickle.loads(pickle.dumps(look_up))("bob")) == "bob"


@pytest.mark.parametrize(
    "url", ["http://x/", "http://x/{key}/{key}", "http://{key}/x", "/customers/{key}", "http://x/#{key}"]
)
def test_url_without_a_place_for_the_key_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match=r"in its path or query|in the path or query"):
        HttpLookUp(url, read=text_of)


def test_missing_httpx_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "httpx", None)
    with pytest.raises(ConfigError, match=r"pip install .*\[http\]'"):
        HttpLookUp("http://x/{key}", read=text_of)


async def _text_later(response: Any) -> str:
    return text_of(response)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"timeout": 5}, "timeout must be a timedelta above 0, not 5"),
        ({"timeout": timedelta(0)}, "timeout must be a timedelta above 0"),
        ({"client": {"verfy": False}}, "client= of HttpLookUp.*unexpected keyword argument 'verfy'"),
        ({"read": _text_later}, "read= of HttpLookUp.*is async"),
    ],
)
def test_wrong_options_are_refused_before_the_first_call(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        HttpLookUp("http://x/{key}", **{"read": text_of, **options})
