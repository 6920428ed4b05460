"""Start the server and serve until SIGTERM or Ctrl-C.

Without options it serves the embedded models on 127.0.0.1:50051, with metrics on 127.0.0.1:9464. Everything else is in
the configuration: a TOML file, and DRAGOMAN_<SECTION>__<FIELD> in the environment.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

from commands.errors import EXIT_USAGE, CommandError

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--config", type=Path, metavar="FILE", help="a TOML file")
    parser.add_argument(
        "--bundle",
        action="append",
        default=[],
        metavar="DIR",
        help="a bundle to serve (repeatable; default: the embedded ones)",
    )
    parser.add_argument(
        "--listen", metavar="HOST:PORT", help="where gRPC listens (default: 127.0.0.1:50051)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Serve to the end."""
    with _ended_by_sigterm():
        return _serve(arguments)


@contextlib.contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """End at once, with 0, while modules and settings are read; then the server has a handler of its own.

    Process 1 of a container has none by default: the signal would be lost.
    """
    before = signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _serve(arguments: argparse.Namespace) -> int:
    from service.app import serve
    from service.config_file import load_config
    from service.errors import ConfigError

    flags: dict[tuple[str, str], object] = {}
    if arguments.bundle:
        flags["models", "bundles"] = tuple(arguments.bundle)
    if arguments.listen is not None:
        flags["server", "listen"] = arguments.listen
    try:
        config = load_config(arguments.config, os.environ, flags)
    except ConfigError as error:
        raise CommandError(str(error), exit_code=EXIT_USAGE) from error
    return serve(config)
