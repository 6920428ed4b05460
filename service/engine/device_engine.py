"""Stages 5 and 6 of 10: the graphs on a device, with everything large in its memory.

Where `onnx_engine` binds arrays of this process, this one binds memory of the device: the encoder writes keys and
values there, and they stay there until their sentence leaves. The same code runs with the CPU as the device, which is
how it is tested.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from export import signature
from export.bundle import Bundle
from service.engine.base import Decoder, EngineFacts, SearchKind
from service.engine.device_cross_attention import DeviceBatch, DeviceCrossAttention
from service.engine.device_decoder import DeviceDecoder, DeviceEncoded
from service.engine.device_graphs import DeviceGraphs
from service.engine.device_memory import Device, DeviceArray, DeviceBinding, DeviceBlock
from service.engine.device_self_attention import DeviceSelfAttention
from service.engine.encoder_batches import cut_into_batches, pad_sources
from service.engine.model_graphs import ModelGraphs, load_graphs
from service.engine.sessions import RUN_ERRORS
from service.errors import EngineStepError

__all__ = ["DeviceEngine", "load_device_engine"]


class DeviceEngine:
    """Graphs and facts of one bundle, without a shortlist: a device is fast at products, not at picking columns."""

    shortlist = None

    def __init__(
        self,
        model: ModelGraphs,
        moves: DeviceGraphs,
        dtype: type[np.generic],
        max_encode_tokens: int,
    ) -> None:
        """Take a model, the small graphs of its device, the type of its caches, and the tokens of an encoder run."""
        self.decoder_session = model.decoder
        self.shape = model.shape
        self._encoder = model.encoder
        self._graphs = moves
        self._facts = model.facts
        self._dtype = dtype
        self._pad_id = model.pad_id
        self._max_encode_tokens = max_encode_tokens
        self._empty_self = DeviceSelfAttention(model.shape, dtype, moves)
        self._empty_cross = DeviceCrossAttention(model.shape, dtype, moves)

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
        rows = self._empty_self.bytes_for(num_rows, target_length)
        return rows + self._empty_cross.bytes_for(num_sentences, source_length)

    def create_decoder(self) -> Decoder:
        return DeviceDecoder(
            self.decoder_session, self.shape, self._dtype, self._graphs, self._facts.vocab_size
        )

    def encode(
        self, sources: Sequence[tuple[int, ...]], kinds: Sequence[SearchKind] = ()
    ) -> DeviceEncoded:
        lengths = [len(source) for source in sources]
        return DeviceEncoded(
            [
                self._encode_batch(places, [sources[place] for place in places])
                for places in cut_into_batches(lengths, self._max_encode_tokens)
            ]
        )

    def _encode_batch(self, places: list[int], sources: list[tuple[int, ...]]) -> DeviceBatch:
        input_ids, mask, lengths = pad_sources(sources, self._pad_id)
        keys, values = self._create_outputs(*mask.shape)
        binding = DeviceBinding(self._encoder)
        binding.feed(signature.INPUT_IDS, input_ids)
        binding.feed(signature.SOURCE_MASK, mask)
        for layer in range(self.shape.num_layers):
            binding.write_device(signature.present_cross_key(layer), keys.part(layer))
            binding.write_device(signature.present_cross_value(layer), values.part(layer))
        try:
            binding.run()
        except RUN_ERRORS as error:
            raise EngineStepError("The encoder failed.") from error
        return DeviceBatch(places, lengths, keys, values)

    def _create_outputs(self, num_sentences: int, longest: int) -> tuple[DeviceArray, DeviceArray]:
        """Take one block for keys (L, B, H, Dh, S) and values (L, B, H, S, Dh)."""
        layers, heads, head_size = (
            self.shape.num_layers,
            self.shape.num_heads,
            self.shape.head_size,
        )
        num_numbers = layers * num_sentences * heads * head_size * longest
        num_bytes = num_numbers * np.dtype(self._dtype).itemsize
        block = DeviceBlock(self._graphs.device, 2 * num_bytes)
        keys = DeviceArray(block, self._dtype, (layers, num_sentences, heads, head_size, longest))
        axes = (layers, num_sentences, heads, longest, head_size)
        return keys, DeviceArray(block, self._dtype, axes, num_bytes)


def load_device_engine(
    bundle: Bundle, *, provider: str, device: Device, max_encode_tokens: int = 512
) -> DeviceEngine:
    """Create the sessions of a bundle.

    Args:
        bundle: A verified bundle.
        provider: "cpu" or "cuda".
        device: Where its memory is.
        max_encode_tokens: Padded source tokens of one run of the encoder, at most.

    Raises:
        ConfigError: As `create_session`.
        BundleError: A graph has not the inputs and outputs that go with the manifest.
    """
    name = signature.cache_dtype(bundle.manifest.precision)
    dtype = np.float16 if name == "float16" else np.float32
    model = load_graphs(bundle, provider)
    return DeviceEngine(model, DeviceGraphs(provider, device), dtype, max_encode_tokens)
