import pytest

from commands.health import default_address


@pytest.mark.parametrize(
    ("listen", "address"),
    [
        ("0.0.0.0:50051", "127.0.0.1:50051"),
        ("[::]:6000", "[::1]:6000"),
        ("127.0.0.1:7000", "127.0.0.1:7000"),
        ("[::1]:7000", "[::1]:7000"),
        ("dragoman:7000", "dragoman:7000"),
    ],
)
def test_a_probe_asks_where_the_environment_lets_the_server_listen(
    listen: str, address: str
) -> None:
    assert default_address({"DRAGOMAN_SERVER__LISTEN": listen}) == address


def test_without_a_setting_a_probe_asks_the_default_port() -> None:
    assert default_address({}) == "127.0.0.1:50051"
