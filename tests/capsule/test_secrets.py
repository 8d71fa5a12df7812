"""Secrets in the sources of a script are not in its capsule."""

import pytest

from streams.capsule import without_secrets


@pytest.mark.parametrize(
    "source",
    [
        "API_TOKEN = {}",
        "api_token: str = {}",
        "self.password = {}",
        "connect('db', password={})",
        "SETTINGS = {{'user': 'me', 'sasl_password': {}}}",
        "os.environ['DB_PASSWORD'] = {}",
        "TOKEN = os.environ.get('SHOP_API_KEY', {})",
        "def read(url, secret={}): pass",
    ],
)
@pytest.mark.parametrize("literal", ["'hunter2'", 'b"hunter2"', '"""hunter2\nhunter2"""'])
def test_a_literal_with_the_name_of_a_secret_is_left_out(source: str, literal: str) -> None:
    text = f"first = 'ü'\n{source.format(literal)}\nlast = 1\n"
    found, secrets = without_secrets(text)
    assert "hunter2" not in found
    assert [line for line, _ in secrets] == [2]
    assert found.count("\n") == text.count("\n")
    compile(found, "script.py", "exec")


def test_an_address_with_a_password_is_left_out_anywhere() -> None:
    found, secrets = without_secrets("read('postgresql://me:hunter2@db/shop')\n")
    assert found == "read('left out')\n"
    assert secrets == [(1, "an address with a password")]


def test_everything_else_stays() -> None:
    text = "TOKEN = os.environ['TOKEN']\npassword = ''\nkey = 'ann'\nprint('token', key)\nurl = 'http://host:80/a@b'\n"
    assert without_secrets(text) == (text, [])
