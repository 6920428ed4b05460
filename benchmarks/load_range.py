"""The servers under load with their clients, and the texts that are sent."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from benchmarks.caller import Caller, decode_call, encode_call, open_caller
from benchmarks.contenders import Contender
from benchmarks.cpu_seconds import CpuSeconds, watch_cpu
from export.bundle import Manifest

__all__ = ["Lane", "Range", "open_range"]

_WARM_UP_TEXTS = 64


@dataclass(frozen=True, slots=True)
class Lane:
    """One server and the connections to it."""

    contender: Contender
    caller: Caller

    @property
    def name(self) -> str:
        """Of the server."""
        return self.contender.name

    def watch_cpu(self) -> AbstractContextManager[CpuSeconds]:
        """Watch how busy the server and this process are."""
        return watch_cpu(self.contender.server.process_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """What all measurements under load share."""

    lanes: Sequence[Lane]
    texts: Sequence[str]
    """Of one sentence each."""
    manifest: Manifest

    def lane(self, name: str) -> Lane:
        """The server of this name."""
        return next(lane for lane in self.lanes if lane.name == name)

    def encode(self, calls: Sequence[tuple[str, ...]]) -> list[bytes]:
        """Messages for calls with these texts."""
        return [encode_call(texts, self.manifest) for texts in calls]


@contextlib.asynccontextmanager
async def open_range(
    contenders: Sequence[Contender], texts: Sequence[str], manifest: Manifest, num_connections: int
) -> AsyncIterator[Range]:
    """Connect to every server, and let each translate some texts so that all is warm.

    Raises:
        RuntimeError: A text was not translated.
    """
    async with contextlib.AsyncExitStack() as stack:
        lanes = [
            Lane(
                each,
                await stack.enter_async_context(open_caller(each.server.address, num_connections)),
            )
            for each in contenders
        ]
        for lane in lanes:
            decode_call(await lane.caller.call(0, encode_call(texts[:_WARM_UP_TEXTS], manifest)))
        yield Range(lanes=lanes, texts=texts, manifest=manifest)
