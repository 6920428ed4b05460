"""The server that Dragoman is compared with: the same gRPC front and work on texts, a request-level batcher behind.

Only what stands in the place of `EngineCore` differs. Run as a process of its own by `benchmarks.load`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

from prometheus_client import CollectorRegistry

from benchmarks.request_batcher import BatchTranslator, RequestBatcher
from benchmarks.sentences import create_sentences
from export.bundle import Bundle, load_bundle
from model.tokenizer import Tokenizer
from service import event_loop
from service.app import tune_interpreter
from service.config import Config, split_address
from service.config_file import load_config
from service.engine.threads import available_cores
from service.grpc_server import METHODS, GrpcServer, TranslationServicer
from service.health import Health
from service.log import configure_logging
from service.metrics import MetricsServer, PrometheusObserver
from service.request_lines import RequestLines
from service.translator import ServedModel, Translator
from service.validation import Validator

__all__ = ["Front", "create_batcher", "main"]

_WARM_UP_TEXT = "The committee decided on Tuesday that the budget would not be approved."


class Front:
    """Everything of a server but the core, composed as `service.app` does."""

    def __init__(
        self,
        config: Config,
        bundle: Bundle,
        tokenizer: Tokenizer,
        core: RequestBatcher,
        lines: RequestLines | None = None,
    ) -> None:
        """Put the parts together. Nothing listens before `start`."""
        registry = CollectorRegistry()
        observer = PrometheusObserver(registry)
        observer.start_methods(METHODS)
        manifest = bundle.manifest
        self._config = config
        self._registry = registry
        self._health = Health()
        self._servicer = TranslationServicer(observer)
        self._translator = Translator(
            [ServedModel(manifest=manifest, tokenizer=tokenizer, core=core)],
            num_text_threads=config.server.num_text_threads,
            observer=observer,
        )
        self._validator = Validator(
            [manifest], config.limits, max_beam_size=config.scheduler.max_batch_rows
        )
        self._grpc = GrpcServer(
            config.server, self._servicer, observer, add_ons=(self._health.add_to,), lines=lines
        )

    async def start(self) -> None:
        """Listen and serve."""
        if self._config.metrics.listen:
            MetricsServer(self._registry, *split_address(self._config.metrics.listen))
        await self._grpc.start()
        self._servicer.start(self._validator, self._translator)
        await self._health.start_serving()

    @property
    def port(self) -> int:
        """Where it listens."""
        return self._grpc.port

    async def stop(self) -> None:
        """End at once."""
        await self._grpc.stop(0)
        self._translator.close()


def create_batcher(
    bundle: Bundle, tokenizer: Tokenizer, config: Config, options: argparse.Namespace
) -> RequestBatcher:
    """Load an engine and put a batcher before it, with as many batches at once as use the cores best."""
    size: int = options.max_batch_sentences
    batch = create_sentences([_WARM_UP_TEXT] * size, bundle.manifest, tokenizer)
    translator: BatchTranslator
    if options.ctranslate2_model is not None:
        from benchmarks.ctranslate2_batches import load_fastest

        translator = load_fastest(options.ctranslate2_model, batch, available_cores())
        num_workers = translator.num_workers
    else:
        from benchmarks.dragoman_batches import DragomanBatches
        from service.engine.onnx_engine import load_onnx_engine

        scheduler = replace(
            config.scheduler, max_batch_rows=size * bundle.manifest.decoding.beam_size
        )
        translator = DragomanBatches(
            load_onnx_engine(
                bundle,
                max_encode_tokens=scheduler.max_encode_tokens,
                use_shortlist=config.engine.shortlist,
            ),
            scheduler,
            answers_early=options.answers_early,
        )
        translator.translate(batch, lambda results: None)
        num_workers = available_cores()
    return RequestBatcher(
        translator,
        num_workers=num_workers,
        max_batch_sentences=size,
        max_delay_seconds=options.max_delay_seconds,
    )


def main() -> int:
    """Serve until a signal comes."""
    options = _parse_arguments()
    flags: dict[tuple[str, str], object] = {("server", "listen"): options.listen}
    config = load_config(None, os.environ, flags)
    lines = configure_logging(config.log)
    tune_interpreter()
    bundle = load_bundle(options.bundle)
    tokenizer = Tokenizer.load(bundle.source_tokenizer_path, bundle.target_tokenizer_path)

    async def serve() -> None:
        batcher = create_batcher(bundle, tokenizer, config, options)
        front = Front(config, bundle, tokenizer, batcher, lines)
        stopping = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stopping.set)
        await front.start()
        await stopping.wait()
        await front.stop()
        batcher.close()

    event_loop.run(serve())
    return 0


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.batcher_server", description=__doc__
    )
    parser.add_argument("--listen", default="127.0.0.1:50052", help="default: %(default)s")
    parser.add_argument("--bundle", type=Path, required=True)
    parser.add_argument("--ctranslate2-model", type=Path, help="by default our own engine runs")
    parser.add_argument("--max-batch-sentences", type=int, default=32, help="default: %(default)s")
    parser.add_argument(
        "--max-delay-seconds", type=float, default=0.005, help="default: %(default)s"
    )
    parser.add_argument(
        "--answers-early",
        action="store_true",
        help="our engine tells a sentence when it is finished, not at the end of its batch",
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
