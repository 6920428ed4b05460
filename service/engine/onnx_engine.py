"""Stages 5 and 6 of 10: the encoder and decoder graphs in ONNX Runtime, on CPUs.

Sessions are shared by all workers: `Run` is thread-safe and frees the GIL. The decoder graph updates its caches in
place: past input and present output are bound to the same memory.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import onnxruntime as ort

from export import signature
from export.bundle import Bundle, BundleError
from export.shortlist import load_shortlist
from service.engine.base import Decoder, EngineFacts, SearchKind
from service.engine.cross_attention_cache import EncodedBatch
from service.engine.decoder_state import CacheShape, DecoderState
from service.engine.encoder_batches import cut_into_batches, pad_sources
from service.engine.huge_pages import use_huge_pages
from service.engine.mixed_decoder import MixedDecoder, RowKind
from service.engine.model_graphs import load_graphs
from service.engine.onnx_decoder import OnnxDecoder, OnnxEncoded
from service.engine.sessions import RUN_ERRORS, create_session, int8_saturates, session_faults
from service.engine.shortlist_decoder import EngineShortlist, ShortlistDecoder
from service.errors import EngineStepError

__all__ = ["OnnxEngine", "load_onnx_engine"]

logger = logging.getLogger(__name__)

_NEAR_TOKENS = 256
"""What a run of the encoder computes for so many tokens stays near the processor: with 512 a token takes 8 % longer."""


class OnnxEngine:
    """Graphs and facts of one bundle."""

    def __init__(  # noqa: PLR0913 - what a bundle holds
        self,
        *,
        encoder: ort.InferenceSession,
        decoder: ort.InferenceSession,
        facts: EngineFacts,
        shape: CacheShape,
        pad_id: int,
        max_encode_tokens: int,
        shortlist: EngineShortlist | None = None,
    ) -> None:
        self.decoder_session = decoder
        self.shortlist = shortlist
        self.shape = shape
        self._encoder = encoder
        self._facts = facts
        self._pad_id = pad_id
        self._max_encode_tokens = max_encode_tokens
        self._encoder_outputs = [
            spec.name
            for spec in signature.encoder_outputs(
                shape.num_layers, shape.num_heads, shape.head_size
            )
        ]
        self._empty_state = DecoderState(shape)

    @property
    def facts(self) -> EngineFacts:
        return self._facts

    @property
    def provider(self) -> str:
        """The execution provider that runs the decoder, as ONNX Runtime names it."""
        return str(self.decoder_session.get_providers()[0])

    def cache_bytes(
        self, num_rows: int, target_length: int, num_sentences: int, source_length: int
    ) -> int:
        rows = self._empty_state.self_attention.bytes_for(num_rows, target_length)
        return rows + self._empty_state.cross_attention.bytes_for(num_sentences, source_length)

    def create_decoder(self) -> Decoder:
        decoders: dict[RowKind, Decoder] = {}
        for is_greedy, min_lanes in ((False, signature.MIN_LANES), (True, 1)):
            decoders[RowKind(False, is_greedy)] = OnnxDecoder(
                self.decoder_session, self.shape, self._facts.vocab_size, min_lanes
            )
            if self.shortlist is not None:
                decoders[RowKind(True, is_greedy)] = ShortlistDecoder(
                    self.shortlist, self.shape, min_lanes
                )
        return MixedDecoder(decoders)

    def encode(
        self, sources: Sequence[tuple[int, ...]], kinds: Sequence[SearchKind] = ()
    ) -> OnnxEncoded:
        lengths = [len(source) for source in sources]
        batches = [
            self._encode_batch(places, [sources[place] for place in places])
            for places in cut_into_batches(lengths, self._max_encode_tokens)
        ]
        padded = sum(len(batch.places) * batch.keys[0].shape[-1] for batch in batches)
        kinds = kinds or [SearchKind()] * len(sources)
        word_lists = [
            None
            if self.shortlist is None or kind.full_vocabulary
            else self.shortlist.words_for(source)
            for source, kind in zip(sources, kinds, strict=True)
        ]
        return OnnxEncoded(batches, padded, word_lists, [kind.is_greedy for kind in kinds])

    def _encode_batch(self, places: list[int], sources: list[tuple[int, ...]]) -> EncodedBatch:
        input_ids, mask, lengths = pad_sources(sources, self._pad_id)
        feeds = {signature.INPUT_IDS: input_ids, signature.SOURCE_MASK: mask}
        try:
            outputs = self._encoder.run(self._encoder_outputs, feeds)
        except RUN_ERRORS as error:
            raise EngineStepError("The encoder failed.") from error
        return EncodedBatch(places, lengths, outputs[0::2], outputs[1::2])


def load_onnx_engine(
    bundle: Bundle, *, max_encode_tokens: int = 512, use_shortlist: bool = True
) -> OnnxEngine:
    """Create the sessions of a bundle on the CPU.

    Args:
        bundle: A verified bundle.
        max_encode_tokens: Padded source tokens of one run of the encoder, at most; 256 are enough.
        use_shortlist: Whether to use the shortlist of a bundle that has one.

    Raises:
        ConfigError: As `create_session`.
        BundleError: A graph has not the inputs and outputs that go with the manifest, or the shortlist is none.
    """
    graphs = load_graphs(bundle, "cpu")
    shortlist = _load_shortlist(bundle) if use_shortlist else None
    use_huge_pages()
    return OnnxEngine(
        encoder=graphs.encoder,
        decoder=graphs.decoder,
        facts=graphs.facts,
        shape=graphs.shape,
        pad_id=graphs.pad_id,
        max_encode_tokens=min(max_encode_tokens, _NEAR_TOKENS),
        shortlist=shortlist,
    )


def _load_shortlist(bundle: Bundle) -> EngineShortlist | None:
    """Load what a shortlist needs; None where there is none, or where it would not be exact.

    What makes 8-bit products exact on processors without VNNI is done to constant weights only.
    """
    if bundle.shortlist_path is None:
        return None
    if bundle.manifest.precision == "int8" and int8_saturates():
        logger.warning(
            "%s: no shortlist on this processor: its 8-bit sums overflow", bundle.directory
        )
        return None
    architecture, precision = bundle.manifest.architecture, bundle.manifest.precision
    int8_caches = bundle.manifest.int8_caches
    cache = (architecture.num_decoder_layers, architecture.num_heads, architecture.head_size)
    decoder = create_session(bundle.shortlist_decoder_path, "cpu")
    columns = create_session(bundle.columns_path, "cpu")
    faults = [
        *session_faults(
            decoder,
            bundle.shortlist_decoder_path.name,
            signature.shortlist_decoder_inputs(
                *cache, architecture.d_model, precision, int8_caches=int8_caches
            ),
            signature.shortlist_decoder_outputs(*cache, int8_caches=int8_caches),
        ),
        *session_faults(
            columns,
            bundle.columns_path.name,
            signature.column_inputs(),
            signature.column_outputs(architecture.d_model, precision),
        ),
    ]
    if faults:
        raise BundleError(str(bundle.directory), faults)
    return EngineShortlist(
        lists=load_shortlist(bundle.shortlist_path),
        decoder=decoder,
        columns=columns,
        vocab_size=architecture.vocab_size,
    )
