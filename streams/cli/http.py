"""The arguments ``--http`` and ``--http-token-file`` of a live run."""

import argparse
from typing import TYPE_CHECKING

from streams.cli.lines import say
from streams.cli.mistakes import UsageError
from streams.cli.options import address
from streams.core.folders import secret_text

if TYPE_CHECKING:
    from streams.app import Streams


def add_http(parser: argparse.ArgumentParser) -> None:
    """Add the arguments ``--http`` and ``--http-token-file``."""
    parser.add_argument(
        "--http",
        metavar="HOST:PORT",
        type=address,
        help="serve the live page, health, metrics and queries of stores over HTTP; of several workers, each takes the "
        "next port (port 0: a free one)",
    )
    parser.add_argument(
        "--http-token-file",
        metavar="FILE",
        help="file with the token that requests need which change something, or all if HOST is not loopback",
    )


def serve_if_asked(streams: "Streams", options: argparse.Namespace) -> None:
    """Serve the application over HTTP if ``--http`` is given, and print the URL.

    Raises:
        UsageError: the token cannot be read.
        ConfigError: the address is taken, or needs a token.
    """
    if options.http is not None:
        server = streams.serve(options.http, token=token_of(options.http_token_file))
        say(f"{server.url} serves the live page, health, metrics and queries")


def http_arguments(options: argparse.Namespace, number: int) -> list[str]:
    """Return the HTTP arguments for worker ``number``, counted from 1."""
    arguments = []
    if options.http is not None:
        host, _, port = options.http.rpartition(":")
        arguments += ["--http", f"{host}:{int(port) + (number - 1 if int(port) else 0)}"]
    if options.http_token_file is not None:
        arguments += ["--http-token-file", options.http_token_file]
    return arguments


def token_of(path: str | None) -> str | None:
    """Return the access token in a file, None if ``path`` is None.

    Raises:
        UsageError: the file cannot be read, or does not contain a token.
    """
    if path is None:
        return None
    try:
        token = secret_text(path, "ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--http-token-file {path}: cannot be read: {error}") from None
    if not token or not token.isprintable() or " " in token:
        raise UsageError(
            f"--http-token-file {path}: expected one word, the token; such as `openssl rand -hex 32` makes"
        )
    return token
