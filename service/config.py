"""The settings of the server: one frozen value a section, each component receives its own section only.

Defaults exist here and nowhere else. Facts about a model (vocabulary, layers, limits) come from its bundle. `None` is
written "auto" in the file and is resolved in `service/app.py` before anything is built. `service/config_file.py` reads
the file and the environment.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from service.errors import ConfigError

__all__ = [
    "Config",
    "EngineConfig",
    "LimitsConfig",
    "LogConfig",
    "MetricsConfig",
    "ModelsConfig",
    "SchedulerConfig",
    "ServerConfig",
    "TracingConfig",
    "require",
    "require_between",
    "split_address",
]

_LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
_PROVIDERS = ("cpu", "cuda")
_MAX_PORT = 65535
_MEBIBYTE = 1024 * 1024


def require(condition: bool, name: str, rule: str, value: object) -> None:
    """Raise the error of a setting that breaks its rule: "`beam_size` must be in [1, 16], but is 0."."""
    if not condition:
        raise ConfigError(f"`{name}` must be {rule}, but is {value!r}.")


def require_between(section: object, low: float, high: float, *names: str) -> None:
    """Require that these fields of a section lie in [low, high]."""
    for name in names:
        value = getattr(section, name)
        require(low <= value <= high, name, f"in [{low}, {high}]", value)


def split_address(address: str) -> tuple[str, int]:
    """Split "127.0.0.1:50051" or "[::1]:50051" into host and port.

    Raises:
        ValueError: When it is no such address.
    """
    match = re.fullmatch(r"(\[[0-9A-Fa-f:.]+\]|[^:\[\]\s]+):([0-9]{1,5})", address)
    if match is None or int(match[2]) > _MAX_PORT:
        raise ValueError(address)
    return match[1].strip("[]"), int(match[2])


def _is_address(address: str) -> bool:
    try:
        split_address(address)
    except ValueError:
        return False
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """Where and how the gRPC server listens, and how it ends."""

    listen: str = "127.0.0.1:50051"
    """Host and port. Port 0 takes a free one."""

    max_receive_message_bytes: int = 16 * _MEBIBYTE
    """A larger message is refused with RESOURCE_EXHAUSTED."""

    max_send_message_bytes: int = 64 * _MEBIBYTE
    """The largest answer."""

    max_stream_items: int = 64
    """Texts of one stream that may be unanswered; the server reads no further message before one is answered."""

    keepalive_seconds: float = 60.0
    """A silent connection is pinged after this time."""

    keepalive_timeout_seconds: float = 20.0
    """A connection that does not answer a ping for this long is closed."""

    max_connection_age_seconds: float = 3600.0
    """A connection is closed, its calls finished, after this time, so that clients find new replicas."""

    max_connection_age_grace_seconds: float = 600.0
    """Calls on a connection that is too old may go on for this long."""

    num_text_threads: int = 2
    """Threads that segment and tokenize."""

    endpoint_removal_seconds: float = 0.0
    """On SIGTERM: how long to go on taking requests after health says NOT_SERVING, until load balancers know; in any
    case until none has come for 0.4 s."""

    drain_seconds: float = 25.0
    """On SIGTERM: how long running requests may take to finish; those that are left are refused, and the process ends
    with 1."""

    def __post_init__(self) -> None:
        require(_is_address(self.listen), "listen", 'a "host:port"', self.listen)
        require_between(
            self, 1024, 2**31 - 1, "max_receive_message_bytes", "max_send_message_bytes"
        )
        require_between(self, 1, 1_000_000, "max_stream_items", "num_text_threads")
        require_between(
            self,
            1,
            1_000_000,
            "keepalive_seconds",
            "keepalive_timeout_seconds",
            "max_connection_age_seconds",
            "max_connection_age_grace_seconds",
        )
        require_between(self, 0, 1_000_000, "endpoint_removal_seconds", "drain_seconds")


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsConfig:
    """How much one request may ask for."""

    max_contents: int = 1024
    """Texts in one call."""

    max_text_characters: int = 100_000
    """Characters in one text; a longer one gets an error as its status."""

    max_text_segments: int = 5_000
    """Sentences in one text; one that has more gets an error as its status."""

    max_request_characters: int = 1_000_000
    """Characters in all texts of one call."""

    def __post_init__(self) -> None:
        require_between(
            self,
            1,
            1_000_000_000,
            "max_contents",
            "max_text_characters",
            "max_text_segments",
            "max_request_characters",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelsConfig:
    """Which models to serve."""

    bundles: tuple[str, ...] = ()
    """Directories of bundles. None: every bundle that came with the program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """What the models run on."""

    provider: str = "cpu"
    """"cpu" or "cuda", which takes float16 bundles. The server refuses to start when it is not the one that runs."""

    num_workers: int | None = None
    """Engine threads of one model. "auto": the cores that the process may use, from its quota and affinity; with "cuda"
    one."""

    shortlist: bool = True
    """Whether to use the vocabulary shortlist of a bundle that has one: faster, and nearly always the same answer. With
    "cuda" there is none."""

    self_test: bool = True
    """Whether to compare an int8 product with exact integers at start-up, and refuse to serve when they differ."""

    def __post_init__(self) -> None:
        require(self.provider in _PROVIDERS, "provider", f"one of {_PROVIDERS}", self.provider)
        if self.num_workers is not None:
            require_between(self, 1, 1024, "num_workers")


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerConfig:
    """Limits of one engine worker's batch, and of the queue before it."""

    max_batch_rows: int = 128
    """Decoder rows (hypotheses) in one step."""

    max_shared_rows: int = 96
    """Decoder rows that documents fill while short calls are there, so that these find room at once."""

    max_batch_tokens: int = 16_384
    """Padded source tokens in one step: rows x the longest source."""

    max_cache_bytes: int = 256 * _MEBIBYTE
    """Memory for caches that running sentences may reserve, each up to its own longest possible target."""

    max_encode_tokens: int = 512
    """Padded source tokens of one run of the encoder. A step encodes no more while others are decoding, else four times
    as many."""

    length_window: int = 64
    """How many waiting sentences are looked at to find some of similar length."""

    max_queue_sequences: int = 20_000
    """Sentences that may wait; more are refused with RESOURCE_EXHAUSTED."""

    max_queue_delay_seconds: float = 0.0
    """How long the oldest waiting sequence may wait for company while the engine is idle."""

    def __post_init__(self) -> None:
        require_between(
            self,
            1,
            1_000_000_000,
            "max_batch_rows",
            "max_shared_rows",
            "max_batch_tokens",
            "max_encode_tokens",
            "length_window",
            "max_queue_sequences",
        )
        require_between(self, 1, 2**62, "max_cache_bytes")
        require_between(self, 0, 1, "max_queue_delay_seconds")


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsConfig:
    """Where Prometheus finds the metrics."""

    listen: str = "127.0.0.1:9464"
    """Host and port, or "" for none."""

    def __post_init__(self) -> None:
        require(
            self.listen == "" or _is_address(self.listen),
            "listen",
            'a "host:port" or ""',
            self.listen,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """What is logged, as JSON lines on standard error."""

    level: str = "INFO"
    """"DEBUG", "INFO", "WARNING" or "ERROR". Texts are never logged."""

    max_request_lines_per_second: int = 10
    """A call has one line at most; of more calls than this in a second the rest is left out and counted. Faults have as
    many lines of their own. 0: none."""

    def __post_init__(self) -> None:
        require(self.level in _LOG_LEVELS, "level", f"one of {_LOG_LEVELS}", self.level)
        require_between(self, 0, 1_000_000, "max_request_lines_per_second")


@dataclass(frozen=True, slots=True, kw_only=True)
class TracingConfig:
    """Whether calls are traced with OpenTelemetry. Needs the extra `tracing`."""

    endpoint: str = ""
    """Collector for OTLP over gRPC, such as "http://127.0.0.1:4317", or "" for no tracing."""

    sample_ratio: float = 1.0
    """Share of traces that begin here and are kept; a trace that a client began is kept when the client keeps it."""

    def __post_init__(self) -> None:
        scheme, _, address = self.endpoint.partition("://")
        require(
            self.endpoint == ""
            or (scheme in ("http", "https") and _is_address(address.removesuffix("/"))),
            "endpoint",
            'a "http://host:port" or ""',
            self.endpoint,
        )
        require_between(self, 0, 1, "sample_ratio")


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """All sections."""

    server: ServerConfig = field(default_factory=ServerConfig)
    """`[server]`"""

    limits: LimitsConfig = field(default_factory=LimitsConfig)
    """`[limits]`"""

    models: ModelsConfig = field(default_factory=ModelsConfig)
    """`[models]`"""

    engine: EngineConfig = field(default_factory=EngineConfig)
    """`[engine]`"""

    scheduler: SchedulerConfig = field(default_factory=SchedulerConfig)
    """`[scheduler]`"""

    metrics: MetricsConfig = field(default_factory=MetricsConfig)
    """`[metrics]`"""

    log: LogConfig = field(default_factory=LogConfig)
    """`[log]`"""

    tracing: TracingConfig = field(default_factory=TracingConfig)
    """`[tracing]`"""
