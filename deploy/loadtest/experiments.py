"""Servers behind Envoy: does more of them give more, does a restart lose a call, how long does a death hurt."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import grpc

from deploy.loadtest.clients import Call, Load
from deploy.loadtest.servers import Server, wait_until_serving

__all__ = [
    "Death",
    "Restart",
    "Throughput",
    "measure_death",
    "measure_restart",
    "measure_throughput",
]

_WARM_UP_SECONDS = 2.0
_OK = grpc.StatusCode.OK


@dataclass(frozen=True, slots=True)
class Throughput:
    """What some servers did under as much load as they take."""

    texts_a_second: float
    characters_a_second: float
    target_tokens_a_second: float
    cpus: float
    """CPU seconds a second that they used, all together."""


@dataclass(frozen=True, slots=True)
class Restart:
    """What a rolling restart did to the calls that went on meanwhile."""

    calls: int
    failed: int
    exit_codes: tuple[int, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class Death:
    """What killing one of several servers did to the calls that went on meanwhile."""

    calls: int
    failed: int
    usual_seconds: float
    """Median time of a call before."""

    last_failure_seconds: float
    """From the kill to the end of the last call that failed; 0 when none did."""

    without_answer_seconds: float
    """The longest time after the kill in which no call at all was answered."""

    slowest_seconds: float
    """The longest call that was under way at the kill or began within a second of it."""


def measure_throughput(
    addresses: Sequence[str],
    servers: Sequence[Server],
    texts: Sequence[str],
    *,
    clients_a_server: int,
    seconds: float,
    rounds: int,
) -> list[Throughput]:
    """Measure behind each address, of which the n-th has the first n servers: medians of interleaved rounds.

    Raises:
        RuntimeError: A call failed.
    """
    found: list[list[Throughput]] = [[] for _ in addresses]
    for _ in range(rounds):
        for index, address in enumerate(addresses):
            with Load(address, num_clients=clients_a_server * (index + 1), texts=texts) as load:
                time.sleep(_WARM_UP_SECONDS)
                before = _Counters.read(servers)
                time.sleep(seconds)
                after = _Counters.read(servers)
            if any(call.code is not _OK for call in load.calls):
                raise RuntimeError(f"calls to {address} failed")
            found[index].append(_throughput(load.calls, before, after))
    return [
        Throughput(
            *(median(values) for values in zip(*map(dataclasses.astuple, each), strict=True))
        )
        for each in found
    ]


def measure_restart(address: str, servers: Sequence[Server], num_clients: int) -> Restart:
    """Restart the servers one after the other under load."""
    began = time.monotonic()
    exit_codes = []
    with Load(address, num_clients=num_clients) as load:
        time.sleep(_WARM_UP_SECONDS)
        for server in servers:
            server.signal("TERM")
            exit_codes.append(server.wait())
            server.remove()
            server.start()
            time.sleep(_WARM_UP_SECONDS)  # as Kubernetes waits until it is ready
    failed = sum(call.code is not _OK for call in load.calls)
    return Restart(len(load.calls), failed, tuple(exit_codes), time.monotonic() - began)


def measure_death(address: str, victim: Server, num_clients: int, seconds: float = 6.0) -> Death:
    """Kill a server under load, without a warning."""
    with Load(address, num_clients=num_clients) as load:
        time.sleep(_WARM_UP_SECONDS + seconds / 2)
        killed = time.monotonic()
        victim.signal("KILL")
        time.sleep(seconds)
    victim.remove()
    victim.start()
    wait_until_serving(address)
    return _judge(load.calls, killed)


@dataclass(frozen=True, slots=True)
class _Counters:
    """What servers have done up to a moment of the monotonic clock."""

    moment: float
    cpu_seconds: float
    target_tokens: float

    @classmethod
    def read(cls, servers: Sequence[Server]) -> _Counters:
        return cls(
            time.monotonic(),
            sum(server.read_metric("process_cpu_seconds_total") for server in servers),
            sum(server.read_metric("dragoman_tokens_total", 'side="target"') for server in servers),
        )


def _throughput(calls: Sequence[Call], before: _Counters, after: _Counters) -> Throughput:
    """Count what calls did in a window; a call counts by the share of it that lies in the window."""
    seconds = after.moment - before.moment
    texts = characters = 0.0
    for call in calls:
        inside = min(call.ended, after.moment) - max(call.began, before.moment)
        share = max(0.0, inside) / call.seconds
        texts += call.texts * share
        characters += call.characters * share
    return Throughput(
        texts_a_second=texts / seconds,
        characters_a_second=characters / seconds,
        target_tokens_a_second=(after.target_tokens - before.target_tokens) / seconds,
        cpus=(after.cpu_seconds - before.cpu_seconds) / seconds,
    )


def _judge(calls: Sequence[Call], killed: float) -> Death:
    failures = [call for call in calls if call.code is not _OK]
    usual = median(call.seconds for call in calls if call.ended < killed)
    answers = sorted(call.ended for call in calls if call.code is _OK and call.ended > killed)
    gaps = [later - earlier for earlier, later in zip([killed, *answers], answers, strict=False)]
    touched = [call.seconds for call in calls if call.began < killed + 1 and call.ended > killed]
    return Death(
        calls=len(calls),
        failed=len(failures),
        usual_seconds=usual,
        last_failure_seconds=max((call.ended - killed for call in failures), default=0.0),
        without_answer_seconds=max(gaps),
        slowest_seconds=max(touched),
    )
