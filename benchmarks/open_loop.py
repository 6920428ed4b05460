"""Calls at times that were fixed beforehand, whether or not earlier ones are answered.

Clients who wait for an answer before they ask again send less to a server that is slow, and so hide how slow it is.
Here a call is sent when its time has come, and its latency counts from that time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import grpc

from benchmarks.arrivals import Arrival
from benchmarks.call_times import CallTime

__all__ = ["Send", "run_open_loop"]

Send = Callable[[int], Awaitable[object]]
"""Sends the call with this number and waits for its answer."""


async def run_open_loop(arrivals: Sequence[Arrival], send: Send) -> list[CallTime]:
    """Send every call at its time and wait until all are answered.

    Args:
        arrivals: In the order of their times.
        send: Raises `grpc.RpcError` when a call fails.

    Returns:
        What became of each call, in order.
    """
    clock = asyncio.get_running_loop().time
    began = clock()

    async def call(number: int) -> CallTime:
        sent = clock() - began
        try:
            await send(number)
            answered = True
        except grpc.RpcError:
            answered = False
        arrival = arrivals[number]
        return CallTime(
            num_texts=len(arrival.texts),
            scheduled=arrival.at,
            sent=sent,
            ended=clock() - began,
            answered=answered,
        )

    tasks: list[asyncio.Task[CallTime]] = []
    for number, arrival in enumerate(arrivals):
        wait = began + arrival.at - clock()
        if wait > 0:
            await asyncio.sleep(wait)
        tasks.append(asyncio.create_task(call(number)))
    return await asyncio.gather(*tasks)
