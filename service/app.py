"""The composition root: builds the parts, starts them in order, and ends them without losing a request.

Life: listen ("" is SERVING) -> load, verify, warm up -> SERVING -> SIGTERM -> NOT_SERVING -> wait until load balancers
know -> take nothing new, finish what runs -> stop the engines -> close. A second signal ends at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import importlib.metadata
import itertools
import logging
import os
import shutil
import signal
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry

from export.bundle import Manifest
from export.errors import ExportError
from model.errors import TokenizerError
from service import event_loop
from service.config import Config, split_address
from service.errors import ConfigError, DragomanError, DrainingError, EngineDeadError
from service.grpc_server import METHODS, GrpcServer, TranslationServicer
from service.health import Health, add_reflection
from service.loading import LoadedModel, load_models
from service.log import configure_logging, log_loop_fault
from service.metrics import MetricsServer, ModelInfo, ModelLimits, PrometheusObserver
from service.observers import FullObserver, Observers
from service.request import Translation, TranslationRequest
from service.request_lines import RequestLines
from service.stats import NullObserver, Observer
from service.translator import Translator
from service.validation import Validator

if TYPE_CHECKING:
    from service.tracing import TracingObserver

__all__ = [
    "Application",
    "LocalAnswer",
    "LocalTranslator",
    "create_translator",
    "serve",
    "tune_interpreter",
]

logger = logging.getLogger(__name__)

EXIT_CUT_OFF = 1
EXIT_CANNOT_START = 2
_EXIT_SIGNAL = 128
_SETTLE_SECONDS = 0.4
"""After SIGTERM, calls are taken until none has come for this long: they were on the wire already."""
_MAX_SETTLE_SECONDS = 3.0
"""But no longer than this."""
_REFUSE_SECONDS = 0.1
"""Once nothing runs, calls are refused until none has come for this long: what the library holds when it stops would
end CANCELLED, which clients do not try again."""
_MAX_REFUSE_SECONDS = 1.0
"""But no longer than this."""
_FLUSH_SECONDS = 1.0
"""How long the last answers may take to leave."""
_SWITCH_SECONDS = 0.0005
"""A thread that waits for the interpreter asks for it after this time, not after 5 ms, which is a step."""

StartUpError = (DragomanError, ExportError, TokenizerError)
"""What is wrong with the configuration, a bundle or the machine: one message, no traceback."""


def serve(config: Config) -> int:
    """Serve until a signal comes, and return the exit code: 0 drained, 1 cut off or engine died, 2 cannot start."""
    lines = configure_logging(config.log)
    tune_interpreter()

    async def run() -> int:  # the gRPC library wants its server made inside the event loop
        try:
            application = Application(config, lines)
        except ConfigError as error:
            sys.stderr.write(f"dragoman: {error}\n")
            return EXIT_CANNOT_START
        return await application.run()

    return event_loop.run(run())


def tune_interpreter() -> None:
    """Let engine threads and the event loop pass the interpreter on sooner. For a process of its own."""
    sys.setswitchinterval(_SWITCH_SECONDS)


class Application:
    """One server process."""

    def __init__(self, config: Config, lines: RequestLines | None = None) -> None:
        """Build what needs no model, inside the event loop. Nothing listens before `startup`.

        Args:
            config: Everything that can be set.
            lines: What `configure_logging` gave.

        Raises:
            ConfigError: Tracing is asked for, but OpenTelemetry is not installed.
        """
        self._config = config
        self._stopping = asyncio.Event()
        self._death: EngineDeadError | None = None
        self._registry = CollectorRegistry()
        self._metrics = PrometheusObserver(self._registry)
        self._metrics.start_methods(METHODS)
        self._tracing = _create_tracing(config)
        self._observer: FullObserver = (
            self._metrics if self._tracing is None else Observers((self._metrics, self._tracing))
        )
        self._health = Health()
        self._servicer = TranslationServicer(
            self._observer, max_stream_items=config.server.max_stream_items
        )
        self.grpc = GrpcServer(
            config.server,
            self._servicer,
            self._observer,
            add_ons=(self._health.add_to, add_reflection),
            lines=lines,
        )
        self.metrics: MetricsServer | None = None
        self.models: list[LoadedModel] = []
        self._translator: Translator | None = None

    async def run(self) -> int:
        """Start, serve until `stop` or a signal, and shut down. Returns the exit code."""
        self._install_signal_handlers()
        asyncio.get_running_loop().set_exception_handler(log_loop_fault)
        try:
            await self.startup()
        except Exception as error:
            await self._close(0)
            if not isinstance(error, StartUpError):
                raise
            sys.stderr.write(f"dragoman: {error}\n")
            return EXIT_CANNOT_START
        if not self._stopping.is_set():
            _show(self.describe())
        await self._stopping.wait()
        was_drained = await self.shutdown()
        return 0 if was_drained and self._death is None else EXIT_CUT_OFF

    async def startup(self) -> None:
        """Listen, load and warm up the models, and say so.

        Raises:
            Exception: One of `StartUpError`; `stop` during loading is no error.
        """
        began = time.monotonic()
        if self._config.metrics.listen:
            self.metrics = MetricsServer(
                self._registry, *split_address(self._config.metrics.listen)
            )
        await self.grpc.start()
        self.models = await asyncio.to_thread(
            load_models, self._config, self._observer, self._on_death
        )
        if self._stopping.is_set():
            return
        for model in self.models:
            self._metrics.start_model(_model_info(model), _model_limits(model, self._config))
            model.core.start()
        self._translator = _create_translator(self.models, self._config, self._observer)
        self._servicer.start(_create_validator(self.models, self._config), self._translator)
        await self._health.start_serving()
        logger.info("Serving after %.2f s", time.monotonic() - began)

    def stop(self) -> None:
        """Begin to shut down."""
        self._stopping.set()

    async def shutdown(self) -> bool:
        """End. Returns whether every running request was finished."""
        logger.info("Shutting down")
        await self._health.stop_serving()
        config = self._config.server
        if self._death is None:
            await asyncio.sleep(config.endpoint_removal_seconds)
            await self._servicer.active.wait_until_quiet(_SETTLE_SECONDS, _MAX_SETTLE_SECONDS)
        self._servicer.stop(self._death or DrainingError("The server is shutting down."))
        was_drained = await self._servicer.active.wait_until_idle(config.drain_seconds)
        if not was_drained:
            logger.warning("Requests were cut off after %s s", config.drain_seconds)
        await self._servicer.active.wait_until_quiet(_REFUSE_SECONDS, _MAX_REFUSE_SECONDS)
        await self._close(_FLUSH_SECONDS)
        logger.info("Stopped")
        return was_drained

    def describe(self) -> str:
        """Tell on one screen what is served, where and how."""
        host, _ = split_address(self._config.server.listen)
        address = f"{_bracketed(host)}:{self.grpc.port}"
        lines = [f"Dragoman {_version()}", f"  gRPC      {address}"]
        if self.metrics is not None:
            metrics_host, _ = split_address(self._config.metrics.listen)
            lines.append(
                f"  metrics   http://{_bracketed(metrics_host)}:{self.metrics.port}/metrics"
            )
        for model in self.models:
            info = _model_info(model)
            lines.append(
                f"  model     {info.model} {info.version}: {info.source} to {info.target}, "
                f"{info.precision} on {info.provider}, {info.threads} "
                f"thread{'s' if info.threads > 1 else ''}, {model.bundle.directory}"
            )
        choice = f"--model {self.models[0].bundle.manifest.name} " if len(self.models) > 1 else ""
        lines.append(
            f'  try       {_command()} translate --address {address} {choice}"Hello, world!"'
        )
        return "\n".join(lines) + "\n"

    async def _close(self, grace_seconds: float) -> None:
        for model in self.models:  # what is left is answered: UNAVAILABLE
            await asyncio.to_thread(model.core.stop)
        await self.grpc.stop(grace_seconds)
        if self._translator is not None:
            self._translator.close()
        if self._tracing is not None:
            await asyncio.to_thread(self._tracing.close)
        if self.metrics is not None:
            await asyncio.to_thread(self.metrics.close)

    def _on_death(self, error: EngineDeadError) -> None:
        logger.critical("The engine died: the process ends")
        self._death = error
        self.stop()

    def _install_signal_handlers(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal, number)

    def _on_signal(self, number: signal.Signals) -> None:
        if self._stopping.is_set():
            logger.warning("Second signal: ending at once")
            sys.stderr.flush()
            os._exit(_EXIT_SIGNAL + number)
        logger.info("%s", number.name)
        self.stop()


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalAnswer:
    """What a model of this process made of a request."""

    manifest: Manifest
    translations: tuple[Translation, ...]


class LocalTranslator:
    """Models in this process, without a server."""

    def __init__(self, models: Sequence[LoadedModel], config: Config) -> None:
        """Take models whose cores are started."""
        self.manifests = tuple(model.bundle.manifest for model in models)
        self._validator = _create_validator(models, config)
        self._translator = _create_translator(models, config)
        self._call_numbers = itertools.count(1)

    async def translate(self, request: TranslationRequest) -> LocalAnswer:
        """Translate the texts of a request, in order.

        Raises:
            DragomanError: The request as a whole cannot be answered. Faults of one text are its `error`.
        """
        key = request.request_id or f"local#{next(self._call_numbers)}"
        valid = self._validator.validate(dataclasses.replace(request, request_id=key))
        translations = await self._translator.translate(valid)
        return LocalAnswer(
            manifest=self._translator.manifest(valid.model), translations=tuple(translations)
        )

    def close(self) -> None:
        """Let the threads end."""
        self._translator.close()


@asynccontextmanager
async def create_translator(config: Config | None = None) -> AsyncIterator[LocalTranslator]:
    """Load models into this process: those of `config.models`, else those that came with the program.

    Raises:
        Exception: One of `StartUpError`.
    """
    config = config or Config()
    models = await asyncio.to_thread(load_models, config, NullObserver())
    with contextlib.ExitStack() as stack:
        for model in models:
            model.core.start()
            stack.callback(model.core.stop)
        translator = LocalTranslator(models, config)
        stack.callback(translator.close)
        yield translator


def _show(text: str) -> None:
    """Write to standard output. That nobody reads it is no reason to end."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        logger.warning("Standard output takes nothing: %s", error.strerror)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # flushed again at the exit


def _create_tracing(config: Config) -> TracingObserver | None:
    if not config.tracing.endpoint:
        return None
    try:
        from service.tracing import create_tracing  # noqa: PLC0415 - an extra, loaded when it is asked for
    except ModuleNotFoundError as error:
        raise ConfigError(
            "`tracing.endpoint` is set, but OpenTelemetry is not installed: "
            "install Dragoman with its extra `tracing`."
        ) from error
    return create_tracing(config.tracing, _version())


def _create_translator(
    models: Sequence[LoadedModel], config: Config, observer: Observer | None = None
) -> Translator:
    return Translator(
        [model.served for model in models],
        num_text_threads=config.server.num_text_threads,
        max_text_segments=config.limits.max_text_segments,
        observer=observer,
    )


def _create_validator(models: Sequence[LoadedModel], config: Config) -> Validator:
    return Validator(
        [model.bundle.manifest for model in models],
        config.limits,
        max_beam_size=config.scheduler.max_batch_rows,
    )


def _model_info(model: LoadedModel) -> ModelInfo:
    manifest = model.bundle.manifest
    return ModelInfo(
        model=manifest.name,
        version=manifest.version,
        source=manifest.source_language,
        target=manifest.target_language,
        provider=model.provider,
        precision=manifest.precision,
        threads=model.num_workers,
    )


def _model_limits(model: LoadedModel, config: Config) -> ModelLimits:
    scheduler = config.scheduler
    return ModelLimits(
        queue=scheduler.max_queue_sequences,
        rows=scheduler.max_batch_rows * model.num_workers,
        kv_bytes=scheduler.max_cache_bytes * model.num_workers,
    )


def _command() -> str:
    """Name the command as a shell finds it: the environment of `make serve` is not on the path."""
    command = Path(sys.executable).with_name("dragoman")
    found = shutil.which("dragoman")
    is_on_path = found is not None and Path(found) == command
    return str(command) if command.exists() and not is_on_path else "dragoman"


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _version() -> str:
    try:
        return importlib.metadata.version("dragoman")
    except importlib.metadata.PackageNotFoundError:
        return "(not installed)"
