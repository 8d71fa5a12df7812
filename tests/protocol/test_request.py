"""A request class names the class of its response."""

import re

import pytest

from streams.broker import EmbeddedBroker
from streams.protocol.group_messages import DescribeGroup, DescribeGroupResponse
from streams.protocol.messages import Fetch, FetchResponse, MetadataResponse
from streams.protocol.request import Response, checked, response_type


def test_every_request_of_the_broker_names_its_response():
    with EmbeddedBroker() as broker:
        for request_type in broker._machine.requests:
            found = response_type(request_type)
            assert issubclass(found, Response)
            assert found.__name__ == f"{request_type.__name__}Response"


def test_a_response_has_the_type_that_its_request_names():
    response = FetchResponse({})

    assert response_type(DescribeGroup) is DescribeGroupResponse
    assert checked(Fetch({}), response) is response


def test_another_response_is_an_error_that_names_both():
    with pytest.raises(AssertionError, match=re.escape("Fetch was answered by MetadataResponse")):
        checked(Fetch({}), MetadataResponse({}, ()))
