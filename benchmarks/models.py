"""The two models of every comparison: the embedded `tiny`, and a `base` of the OPUS-MT shape with random weights.

Each is written once for every engine: our bundle in both precisions and a CTranslate2 model, of the same weights.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import onnx
import torch

from benchmarks.ctranslate2_engine import CTranslate2Engine, thread_choices
from benchmarks.ctranslate2_model import save_ctranslate2_model, vocabulary
from benchmarks.dragoman_engine import DragomanEngine
from benchmarks.part import CannotRunError
from export.bundle import (
    DECODER_FILE,
    Architecture,
    Bundle,
    DecodingDefaults,
    Limits,
    Manifest,
    Precision,
    SpecialTokens,
    load_bundle,
)
from export.calibration import ActivationRanges, measure_ranges
from export.exporter import suppressed_ids, write_graphs
from export.shortlist import SHORTLIST_FILE, Shortlist, save_shortlist
from export.signature import past_self_key
from model.checkpoint import load_model, replace_directory
from model.config import TransformerConfig
from model.transformer import Transformer
from service.engine.onnx_engine import OnnxEngine, load_onnx_engine

__all__ = ["EMBEDDED_BUNDLE", "EMBEDDED_CHECKPOINT", "BenchModel", "create_base", "create_tiny"]

_ROOT = Path(__file__).resolve().parent.parent
_EXPORTER = _ROOT / "export"
_PRETRAINED = _ROOT / "model" / "pretrained"
EMBEDDED_BUNDLE = _PRETRAINED / "en-pt"
EMBEDDED_CHECKPOINT = _PRETRAINED / "en-pt.checkpoint"

_LIMITS = Limits(max_source_tokens=256, max_target_tokens=512)
_BASE_VOCABULARY = 58_101
_UNK_ID = 1
_FREQUENT_WORDS = 1000
_WORDS_OF_A_SOURCE = 18


@dataclass(slots=True, kw_only=True)
class BenchModel:
    """One model for all engines; what an engine needs is written when it is asked for, and kept in `directory`."""

    name: str
    directory: Path
    create: Callable[[], Transformer]
    special_tokens: SpecialTokens
    bundles: dict[str, Path] = field(default_factory=dict)
    """Bundles that exist already, by precision."""
    create_shortlist: Callable[[], Shortlist] | None = None
    """Makes up a shortlist where the bundle that exists has none of its own."""
    _transformer: Transformer | None = None
    _engines: dict[str, OnnxEngine] = field(default_factory=dict)

    @property
    def transformer(self) -> Transformer:
        """The weights."""
        if self._transformer is None:
            self._transformer = self.create().eval()
        return self._transformer

    @property
    def config(self) -> TransformerConfig:
        """The shape."""
        return self.transformer.config

    def bundle(self, precision: Precision) -> Bundle:
        """Our graphs in one precision."""
        if precision in self.bundles:
            return load_bundle(self.bundles[precision])
        directory = self.directory / f"{self.name}-{precision}-{_exporter_digest()}"
        makes_shortlist = precision == "int8" and self.create_shortlist is not None
        if not directory.exists():
            with replace_directory(directory) as partial:
                write_graphs(
                    self.transformer,
                    partial,
                    precision,
                    _LIMITS,
                    suppressed_ids(self.special_tokens),
                    with_shortlist=makes_shortlist,
                    ranges=self._ranges(precision),
                )
                if self.create_shortlist is not None:
                    save_shortlist(partial / SHORTLIST_FILE, self.create_shortlist())
        manifest = replace(self._manifest(precision), int8_caches=_keeps_int8(directory))
        if makes_shortlist:
            manifest = replace(manifest, shortlist=SHORTLIST_FILE)
        return Bundle(directory=directory, manifest=manifest)

    def onnx_engine(self, precision: Precision) -> OnnxEngine:
        """Our engine with its graphs loaded."""
        if precision not in self._engines:
            self._engines[precision] = load_onnx_engine(self.bundle(precision), use_shortlist=False)
        return self._engines[precision]

    def shortlist_engine(self) -> OnnxEngine:
        """Our int8 engine with a vocabulary shortlist: that of the bundle, or one that is made up.

        Raises:
            CannotRunError: The bundle has none.
        """
        bundle = self.bundle("int8")
        if bundle.manifest.shortlist is None:
            raise CannotRunError(f"the bundle {bundle.directory} has no shortlist.")
        return load_onnx_engine(bundle)

    def dragoman(self, precision: Precision, num_workers: int) -> DragomanEngine:
        """Our engine with some workers."""
        return DragomanEngine("Dragoman", self.onnx_engine(precision), num_workers)

    def ctranslate2(self, precision: Precision, num_cores: int) -> list[CTranslate2Engine]:
        """CTranslate2 with every sensible choice of threads."""
        directory = self.ctranslate2_directory
        return [
            CTranslate2Engine(directory, self.tokens, precision, threads)
            for threads in thread_choices(num_cores)
        ]

    @property
    def ctranslate2_directory(self) -> Path:
        """The same weights for CTranslate2, in float32."""
        directory = self.directory / f"{self.name}-ctranslate2"
        if not directory.exists():
            save_ctranslate2_model(self.transformer, directory, self.special_tokens.unk_id)
        return directory

    @property
    def tokens(self) -> list[str]:
        """CTranslate2's name of every token id."""
        special = self.special_tokens
        return vocabulary(
            self.config.target_vocab_size,
            eos_id=special.eos_id,
            bos_id=special.bos_id,
            unk_id=special.unk_id,
        )

    def _ranges(self, precision: Precision) -> ActivationRanges | None:
        """Activation ranges as `dragoman export --calibration-text` has them; the text is words drawn at random."""
        if precision != "int8":
            return None
        chance = np.random.default_rng(0)
        sources = [
            [*chance.integers(2, self.config.source_vocab_size - 2, length).tolist(), 0]
            for length in range(10, 30)
        ]
        return measure_ranges(self.transformer, sources)

    def _manifest(self, precision: Precision) -> Manifest:
        config = self.config
        return Manifest(
            name=self.name,
            version="0",
            source_language="und",
            target_language="und",
            architecture=Architecture(
                num_encoder_layers=config.encoder_layers,
                num_decoder_layers=config.decoder_layers,
                num_heads=config.num_heads,
                head_size=config.head_size,
                d_model=config.d_model,
                vocab_size=config.target_vocab_size,
            ),
            precision=precision,
            limits=_LIMITS,
            decoding=DecodingDefaults(beam_size=4, length_penalty=1.0),
            special_tokens=self.special_tokens,
            tokenizer_files={},
            license="CC0-1.0",
            scores=(),
            files={},
        )


def _keeps_int8(directory: Path) -> bool:
    """Read from a decoder graph what the manifest of a bundle would say."""
    graph = onnx.load(directory / DECODER_FILE, load_external_data=False).graph
    (past,) = (value for value in graph.input if value.name == past_self_key(0))
    return bool(past.type.tensor_type.elem_type == onnx.TensorProto.INT8)


def _exporter_digest() -> str:
    """Names the state of the exporter, so that graphs which an older one wrote are not taken for its own."""
    digest = hashlib.sha256()
    for path in sorted(_EXPORTER.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def create_tiny(directory: Path) -> BenchModel:
    """The embedded model; int8 is the bundle that ships."""
    return BenchModel(
        name="tiny",
        directory=directory,
        create=lambda: load_model(EMBEDDED_CHECKPOINT),
        special_tokens=load_bundle(EMBEDDED_BUNDLE).manifest.special_tokens,
        bundles={"int8": EMBEDDED_BUNDLE},
    )


def create_base(directory: Path) -> BenchModel:
    """A model of the shape of OPUS-MT's, with random weights: good for times, not for texts."""
    pad_id = _BASE_VOCABULARY - 1
    return BenchModel(
        name="base",
        directory=directory,
        create=lambda: _random_model(pad_id),
        special_tokens=SpecialTokens(eos_id=0, pad_id=pad_id, unk_id=_UNK_ID, bos_id=None),
        create_shortlist=_random_shortlist,
    )


def _random_shortlist() -> Shortlist:
    """Draw lists so that 32 sentences of usual length need about as many words together as real text does: 6,000.

    Words follow Zipf's law, as the words of a language do, so that lists share the frequent ones.
    """
    chance = np.random.default_rng(0)
    size = (_BASE_VOCABULARY, _WORDS_OF_A_SOURCE)
    zipf = np.exp(chance.random(size) * np.log(_BASE_VOCABULARY - 3)).astype(np.uint16) + 1
    return Shortlist(
        frequent=np.array([0, *range(2, _FREQUENT_WORDS + 1)], np.uint16),
        offsets=np.arange(_BASE_VOCABULARY + 1, dtype=np.uint32) * _WORDS_OF_A_SOURCE,
        targets=zipf.ravel().astype(np.uint16),
    )


def _random_model(pad_id: int) -> Transformer:
    config = TransformerConfig.from_preset(
        "base",
        source_vocab_size=_BASE_VOCABULARY,
        target_vocab_size=_BASE_VOCABULARY,
        activation="silu",
        positional_encoding="sinusoidal_halves",
        output_bias=True,
        start_from_zero_embedding=True,
        pad_id=pad_id,
        bos_id=pad_id,
        eos_id=0,
        dropout=0.0,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Transformer(config)
