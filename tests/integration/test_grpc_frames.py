"""The frames of HTTP/2 that a server sends beside its answers."""

from __future__ import annotations

import asyncio
import struct

from benchmarks.http2 import SETTINGS
from service.wire import SERVICE_NAME
from tests.grpc_serving import Serving, make_request, with_server
from tests.raw_grpc import frames_of_call

_PING, _INITIAL_WINDOW_SIZE = 6, 4  # RFC 9113


def test_a_client_may_send_four_megabytes_at_once_and_is_not_pinged_to_find_that_out() -> None:
    async def test(server: Serving) -> None:
        address, path = f"127.0.0.1:{server.server.port}", f"/{SERVICE_NAME}/TranslateText"
        message = make_request("x" * 10_000).SerializeToString()
        frames = await asyncio.to_thread(frames_of_call, address, path, message, {})
        assert _PING not in {each.kind for each in frames}
        pairs = [
            struct.unpack_from(">HI", each.payload, start)
            for each in frames
            if each.kind == SETTINGS
            for start in range(0, len(each.payload), 6)
        ]
        assert dict(pairs)[_INITIAL_WINDOW_SIZE] == 4 * 1024 * 1024

    with_server(test)
