"""Start-up: from directories to models that are verified, loaded and warm.

Slow and blocking; `app.py` runs it in a thread while the event loop already answers health checks.
"""

from __future__ import annotations

import importlib.util
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from export.bundle import MANIFEST_FILE, Bundle, BundleError, load_bundle, vocabulary_faults
from export.shortlist import shortlist_faults
from model.tokenizer import Tokenizer
from service.config import Config
from service.core import EngineCore
from service.driver import Driver
from service.engine.base import Engine
from service.engine.int8_self_test import check_int8_products
from service.engine.load_engine import check_precision, load_engine
from service.engine.sessions import check_provider
from service.engine.threads import available_cores
from service.engine_workers import EngineThreads
from service.errors import ConfigError, DragomanError, EngineDeadError, EngineStepError
from service.request import DecodingOptions, Outcome
from service.request import Sequence as SourceSequence
from service.stats import Observer
from service.translator import ServedModel

__all__ = ["LoadedModel", "embedded_bundles", "find_bundles", "load_models"]

logger = logging.getLogger(__name__)

_WARM_UP_TEXTS = (
    "Hello.",
    "The committee decided on Tuesday that the budget would not be approved.",
    "One of the most common problems when trying to convert a movie to another format is that it takes so long.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel:
    """A model that is ready, with everything that tells or ends it."""

    bundle: Bundle
    served: ServedModel
    core: EngineCore
    provider: str
    num_workers: int


def find_bundles(names: Sequence[str]) -> list[Path]:
    """List the directories to load: those that are named, else those that came with the program.

    Raises:
        ConfigError: There is none.
    """
    directories = [Path(name) for name in names] or embedded_bundles()
    if not directories:
        raise ConfigError(
            "There is no model to serve: name a bundle with --bundle or in `models.bundles`."
        )
    return directories


def embedded_bundles() -> list[Path]:
    """List the bundles under `model/pretrained/`, wherever the package `model` lies."""
    spec = importlib.util.find_spec("model")
    places = (spec.submodule_search_locations if spec is not None else None) or ()
    return sorted(
        manifest.parent
        for place in places
        for manifest in Path(place, "pretrained").glob(f"*/{MANIFEST_FILE}")
    )


def load_models(
    config: Config, observer: Observer, on_death: Callable[[EngineDeadError], None] | None = None
) -> list[LoadedModel]:
    """Verify and load every bundle, and run each model once. The cores are not started.

    Raises:
        BundleError: A bundle cannot be used; with every fault in one message.
        TokenizerError: A vocabulary cannot be used.
        ConfigError: There is no bundle, two have the same name, or the provider is not there or does not take them.
        EngineDeadError: The runtime does not take the graphs.
    """
    bundles = [load_bundle(directory) for directory in find_bundles(config.models.bundles)]
    _check_names(bundles)
    check_provider(config.engine.provider)
    for bundle in bundles:
        check_precision(bundle, config.engine.provider)
    if config.engine.self_test and any(b.manifest.precision == "int8" for b in bundles):
        check_int8_products(config.engine.provider)
    return [_load(bundle, config, observer, on_death) for bundle in bundles]


def _check_names(bundles: Sequence[Bundle]) -> None:
    seen: dict[str, Bundle] = {}
    for bundle in bundles:
        other = seen.setdefault(bundle.manifest.name, bundle)
        if other is not bundle:
            raise ConfigError(
                f"Two bundles have the model name {bundle.manifest.name!r}: "
                f"{other.directory} and {bundle.directory}."
            )


def _load(
    bundle: Bundle,
    config: Config,
    observer: Observer,
    on_death: Callable[[EngineDeadError], None] | None,
) -> LoadedModel:
    began = time.monotonic()
    manifest = bundle.manifest
    tokenizer = Tokenizer.load(bundle.source_tokenizer_path, bundle.target_tokenizer_path)
    faults = [*vocabulary_faults(manifest, tokenizer)]
    if faults:
        raise BundleError(str(bundle.directory), faults)
    engine = load_engine(
        bundle,
        provider=config.engine.provider,
        max_encode_tokens=config.scheduler.max_encode_tokens,
        use_shortlist=config.engine.shortlist,
    )
    if engine.shortlist is not None:
        faults += shortlist_faults(
            engine.shortlist.lists,
            source_vocab_size=tokenizer.source_vocab_size,
            target_vocab_size=tokenizer.target_vocab_size,
            eos_id=tokenizer.eos_id,
        )
    if faults:
        raise BundleError(str(bundle.directory), faults)
    _warm_up(engine, tokenizer, bundle, config)
    num_workers = config.engine.num_workers or _num_workers(config.engine.provider)
    core = EngineCore(
        name=manifest.name,
        workers=EngineThreads(
            model=manifest.name, engine=engine, config=config.scheduler, num_workers=num_workers
        ),
        config=config.scheduler,
        observer=observer,
        on_death=on_death,
    )
    seconds = time.monotonic() - began
    logger.info("Loaded model %s %s in %.2f s", manifest.name, manifest.version, seconds)
    return LoadedModel(
        bundle=bundle,
        served=ServedModel(manifest=manifest, tokenizer=tokenizer, core=core),
        core=core,
        provider=config.engine.provider,
        num_workers=num_workers,
    )


def _num_workers(provider: str) -> int:
    """One for each core; one alone for a device, which is fast when its batches are large."""
    return available_cores() if provider == "cpu" else 1


def _warm_up(engine: Engine, tokenizer: Tokenizer, bundle: Bundle, config: Config) -> None:
    """Translate a little without anybody being told, so that the first request is as fast as the tenth."""
    driver = Driver(model=bundle.manifest.name, engine=engine, config=config.scheduler)
    limits, decoding = bundle.manifest.limits, bundle.manifest.decoding
    for number, source_ids in enumerate(tokenizer.encode_source_batch(_WARM_UP_TEXTS)):
        driver.add(
            SourceSequence(
                sequence_id=-1 - number,
                request_id="warm-up",
                source_ids=tuple(source_ids),
                options=DecodingOptions(
                    beam_size=min(decoding.beam_size, config.scheduler.max_batch_rows),
                    length_penalty=decoding.length_penalty,
                    max_target_tokens=limits.max_target_tokens,
                ),
                max_length=min(limits.max_target_tokens, 2 * len(source_ids) + 10),
            )
        )
    while driver.seconds_until_step() is not None:
        for departure in driver.step().departures:
            if departure.result.outcome is not Outcome.FINISHED:
                raise _unusable(bundle, departure.result.error)


def _unusable(bundle: Bundle, error: DragomanError | None) -> EngineDeadError:
    cause = error.__cause__ if isinstance(error, EngineStepError) else error
    return EngineDeadError(f"Model {bundle.manifest.name!r} does not run: {cause or error}")
