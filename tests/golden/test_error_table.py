"""What each error is on the wire: clients and alerts rely on it."""

from __future__ import annotations

from service.interceptors import ERROR_TABLE
from tests.golden_files import assert_matches_golden


def test_the_error_table_is_the_golden_one() -> None:
    lines = [
        f"{kind.__name__} {entry.grpc_code.name} {entry.http_status} {entry.rejection}\n"
        for kind, entry in ERROR_TABLE.items()
    ]
    assert_matches_golden("error_table.txt", "".join(sorted(lines)))
