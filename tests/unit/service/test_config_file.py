"""Every fault of the configuration in one clear message; defaults in one place."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from service.config import Config, LimitsConfig, SchedulerConfig, ServerConfig, split_address
from service.config_file import load_config
from service.errors import ConfigError


def _written(directory: Path, text: str) -> Path:
    path = directory / "dragoman.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_without_anything_set_the_defaults_hold() -> None:
    assert load_config() == Config()


def test_flags_override_environment_and_environment_overrides_the_file(tmp_path: Path) -> None:
    path = _written(tmp_path, '[server]\nlisten = "a:1"\n[limits]\nmax_contents = 5\n')
    environ = {"DRAGOMAN_SERVER__LISTEN": "b:2", "DRAGOMAN_METRICS__LISTEN": "m:9"}
    config = load_config(path, environ, {("server", "listen"): "c:3"})
    assert config.server.listen == "c:3"
    assert load_config(path, environ).server.listen == "b:2"
    assert config.limits.max_contents == 5
    assert config.metrics.listen == "m:9"


def test_an_unknown_key_names_the_nearest_valid_one(tmp_path: Path) -> None:
    path = _written(tmp_path, "[scheduler]\nmax_batch_row = 3\n")
    with pytest.raises(
        ConfigError,
        match=r"`scheduler.max_batch_row` does not exist, did you mean `max_batch_rows`\?$",
    ):
        load_config(path)


def test_an_unknown_section_names_the_nearest_valid_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="section `sever` does not exist, did you mean `server`"):
        load_config(_written(tmp_path, "[sever]\nlisten = 'a:1'\n"))


def test_all_faults_are_told_in_one_message(tmp_path: Path) -> None:
    path = _written(
        tmp_path,
        "top = 1\n[server]\nlisten = 'nowhere'\nnum_text_threads = 0\n[scheduler]\nmax_batch_rows = 'many'\n",
    )
    environ = {
        "DRAGOMAN_LIMITS__MAX_CONTENTS": "x",
        "DRAGOMAN_LOG__LEVEL": "LOUD",
        "DRAGOMAN_NO__WHERE": "1",
    }
    with pytest.raises(ConfigError) as caught:
        load_config(path, environ)
    message = str(caught.value)
    assert "\n" not in message
    for part in (
        "`top` must stand in a section",
        "`server.listen` must be a \"host:port\", but is 'nowhere'",
        "`server.num_text_threads` must be in [1, 1000000], but is 0",
        "`scheduler.max_batch_rows` must be an integer, but is 'many'",
        "DRAGOMAN_LIMITS__MAX_CONTENTS: `limits.max_contents` must be an integer, but is 'x'",
        "DRAGOMAN_LOG__LEVEL: `log.level` must be one of",
        "DRAGOMAN_NO__WHERE: section `no` does not exist",
    ):
        assert part in message


@pytest.mark.parametrize(
    "text", ["[server\n", "a = \n", "\x00", "a = " + "9" * 5000, "a = " + "[" * 100_000]
)
def test_a_file_that_is_no_toml_says_so(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match="not valid TOML"):
        load_config(_written(tmp_path, text))


def test_a_missing_file_says_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        load_config(tmp_path / "none.toml")


def test_auto_stands_for_none(tmp_path: Path) -> None:
    path = _written(tmp_path, '[engine]\nnum_workers = "auto"\n')
    assert load_config(path).engine.num_workers is None
    assert load_config(path, {"DRAGOMAN_ENGINE__NUM_WORKERS": "3"}).engine.num_workers == 3
    with pytest.raises(ConfigError, match='an integer or "auto", but is True'):
        load_config(_written(tmp_path, "[engine]\nnum_workers = true\n"))


def test_environment_reads_every_kind_of_value() -> None:
    config = load_config(
        None,
        {
            "DRAGOMAN_MODELS__BUNDLES": "/a:/b",
            "DRAGOMAN_SERVER__DRAIN_SECONDS": "3",
            "DRAGOMAN_ENGINE__SELF_TEST": "off",
            "DRAGOMAN_HOME": "/not/a/setting",
        },
    )
    assert config.models.bundles == ("/a", "/b")
    assert config.server.drain_seconds == 3.0
    assert config.engine.self_test is False


@pytest.mark.parametrize(
    ("key", "setting"),
    [
        ("DRAGOMAN_LOG_LEVEL", "DRAGOMAN_LOG__LEVEL"),
        ("DRAGOMAN_SERVER_DRAIN_SECONDS", "DRAGOMAN_SERVER__DRAIN_SECONDS"),
        ("DRAGOMAN_SERVER__DRAIN__SECONDS", "DRAGOMAN_SERVER__DRAIN_SECONDS"),
        ("DRAGOMAN_LOG___LEVEL", "DRAGOMAN_LOG__LEVEL"),
    ],
)
def test_a_setting_with_the_wrong_number_of_underscores_is_not_ignored(
    key: str, setting: str
) -> None:
    with pytest.raises(ConfigError, match=rf"{key}: did you mean `{setting}`\?$"):
        load_config(None, {key: "DEBUG"})


def test_what_kubernetes_tells_of_a_service_of_this_name_is_no_setting() -> None:
    environ = {
        "DRAGOMAN_SERVICE_HOST": "10.0.0.1",
        "DRAGOMAN_SERVICE_PORT_GRPC": "50051",
        "DRAGOMAN_PORT": "tcp://10.0.0.1:50051",
        "DRAGOMAN_PORT_9464_TCP_ADDR": "10.0.0.1",
        "DRAGOMAN_METRICS_PORT": "tcp://10.0.0.2:9464",
    }
    assert load_config(None, environ) == Config()


def test_a_section_refuses_values_out_of_range() -> None:
    with pytest.raises(
        ConfigError, match=r"`max_batch_rows` must be in \[1, 1000000000\], but is 0"
    ):
        SchedulerConfig(max_batch_rows=0)
    with pytest.raises(ConfigError, match="max_text_characters"):
        LimitsConfig(max_text_characters=-1)
    with pytest.raises(ConfigError, match="drain_seconds"):
        ServerConfig(drain_seconds=float("nan"))


@pytest.mark.parametrize(
    "address",
    ["", ":1", "host", "host:", "host:x", "host:70000", "a b:1", "::1:5", "a:-1", "a:\uff15"],
)
def test_an_address_is_a_host_and_a_port(address: str) -> None:
    with pytest.raises(ValueError):
        split_address(address)
    with pytest.raises(ConfigError):
        ServerConfig(listen=address)


def test_an_address_may_be_ipv6() -> None:
    assert split_address("[::1]:50051") == ("::1", 50051)
    assert split_address("localhost:0") == ("localhost", 0)


@pytest.mark.parametrize(
    ("key", "value", "rule"),
    [
        ("DRAGOMAN_TRACING__ENDPOINT", "127.0.0.1:4317", 'must be a "http://host:port" or ""'),
        ("DRAGOMAN_TRACING__ENDPOINT", "http://collector:4317/v1/traces", '"http://host:port"'),
        ("DRAGOMAN_TRACING__ENDPOINT", "http://collector", '"http://host:port"'),
        ("DRAGOMAN_TRACING__ENDPOINT", "http://collector:port", '"http://host:port"'),
        ("DRAGOMAN_TRACING__ENDPOINT", "http://collector:99999", '"http://host:port"'),
        ("DRAGOMAN_TRACING__ENDPOINT", "grpc://collector:4317", '"http://host:port"'),
        ("DRAGOMAN_TRACING__SAMPLE_RATIO", "2", "must be in [0, 1], but is 2"),
        ("DRAGOMAN_LOG__MAX_REQUEST_LINES_PER_SECOND", "-1", "must be in [0, 1000000]"),
        ("DRAGOMAN_LOG__MAX_REQUEST_LINES_PER_SECOND", "few", "must be an integer"),
    ],
)
def test_what_tracing_and_the_log_cannot_do_is_refused(key: str, value: str, rule: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(rule)):
        load_config(None, {key: value})


@pytest.mark.parametrize("endpoint", ["", "http://127.0.0.1:4317", "https://otel.example:4317/"])
def test_a_collector_has_an_address_with_its_scheme(endpoint: str) -> None:
    config = load_config(None, {"DRAGOMAN_TRACING__ENDPOINT": endpoint})
    assert config.tracing.endpoint == endpoint
