"""Ask a server whether it is serving: exit code 0 when it is, 1 when it is not. Made for container probes."""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Mapping

from commands.client import Client
from commands.errors import CommandError

__all__ = ["DEFAULT_ADDRESS", "add_arguments", "default_address", "run"]

DEFAULT_ADDRESS = "127.0.0.1:50051"
_EVERY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}
_MAX_SECONDS = 86_400


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--address",
        default=default_address(os.environ),
        metavar="HOST:PORT",
        help="where the server listens (default: DRAGOMAN_SERVER__LISTEN, else 127.0.0.1:50051)",
    )
    parser.add_argument(
        "--service",
        default="dragoman.v1.TranslationService",
        metavar="NAME",
        help='service to ask for; "" is the process as a whole (default: %(default)s)',
    )
    parser.add_argument(
        "--timeout",
        type=_seconds,
        default=5.0,
        metavar="SECONDS",
        help="how long to wait for an answer (default: %(default)s)",
    )


def default_address(environ: Mapping[str, str]) -> str:
    """Where the server of this environment is reached, so that a container's probe follows its settings."""
    address = environ.get("DRAGOMAN_SERVER__LISTEN") or DEFAULT_ADDRESS
    host, _, port = address.rpartition(":")
    return f"{_EVERY_ADDRESS.get(host.strip('[]'), host)}:{port}"


def run(arguments: argparse.Namespace) -> int:
    """Print the status and turn it into the exit code."""
    status = asyncio.run(_ask(arguments.address, arguments.service, arguments.timeout))
    print(status)
    return 0 if status == "SERVING" else 1


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds <= _MAX_SECONDS:
        raise argparse.ArgumentTypeError(f"must be in (0, {_MAX_SECONDS}], but is {text}")
    return seconds


async def _ask(address: str, service: str, timeout_seconds: float) -> str:
    async with Client(address, timeout_seconds=timeout_seconds) as client:
        try:
            return await client.check_health(service)
        except CommandError as error:
            raise CommandError(
                str(error)
            ) from error  # whatever the reason: not healthy, exit code 1
