"""How large the numbers get that go into the layers, channel by channel: what fixed scales are made from.

Without text the model translates sentences of random words. That is enough behind a LayerNorm, which bounds what comes
out of it, and behind an embedding, which knows no other words. How large the mixtures of attention and the inside of
feed-forward networks get depends on the text, so they are measured only where there is some; and so are the keys and
values of the decoder's self-attention, which are kept.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from export.errors import ExportError
from model.config import TransformerConfig
from model.masks import length_mask
from model.transformer import Transformer

__all__ = [
    "CALIBRATION_FILE",
    "ActivationRanges",
    "load_ranges",
    "measure_ranges",
    "range_faults",
    "save_ranges",
]

CALIBRATION_FILE = "calibration.safetensors"

_SENTENCES = 64
"""Sentences of random words, and of text that is translated together."""
_LENGTH = 24
"""Random words in a sentence, EOS included."""
_MARGIN = 1.1
"""How much more than what random words showed is kept free; what is beyond it is cut."""
_LONGEST = 256
"""Tokens of a translation, at most."""

_HIDDEN = "hidden"
_OUTPUT = ".output"
"""Ends the names of what comes out of a layer in a file."""
_DEPENDS_ON_TEXT = (".output_proj", ".linear_out")
_READS_MEMORY = (".cross_attention.key_proj", ".cross_attention.value_proj")
_IS_KEPT = (".self_attention.key_proj", ".self_attention.value_proj")
"""Layers of the decoder whose outputs self-attention keeps."""


@dataclass(frozen=True, slots=True, eq=False)
class ActivationRanges:
    """Largest magnitudes."""

    hidden: float
    """Of the decoder's output, before the vocabulary."""
    inputs: Mapping[str, Tensor]
    """Of each channel that goes into a linear layer, (K,) in float32, by the layer's name in the model."""
    kept: Mapping[str, Tensor] = field(default_factory=dict)
    """Of each channel of what the decoder's self-attention keeps, (D,), by the name of the layer that makes it."""


def save_ranges(path: Path, ranges: ActivationRanges) -> None:
    """Write them to a safetensors file; equal ranges give equal bytes."""
    kept = {f"{name}{_OUTPUT}": largest for name, largest in ranges.kept.items()}
    path.write_bytes(save({**ranges.inputs, **kept, _HIDDEN: torch.tensor([ranges.hidden])}))


def load_ranges(path: Path) -> ActivationRanges:
    """Read what `save_ranges` wrote; whether it fits a model is for `range_faults` to say.

    Raises:
        ExportError: It is no such file.
    """
    try:
        tensors = {name: tensor.float() for name, tensor in load_file(path).items()}
    except (OSError, SafetensorError) as error:
        raise ExportError(f"{path} holds no activation ranges: {error}.") from error
    hidden = tensors.pop(_HIDDEN, None)
    if hidden is None or hidden.numel() != 1:
        raise ExportError(f"{path} holds no activation ranges: `{_HIDDEN}` must be one number.")
    kept = {name: tensors.pop(name) for name in [*tensors] if name.endswith(_OUTPUT)}
    return ActivationRanges(
        hidden.item(), tensors, {name.removesuffix(_OUTPUT): kept[name] for name in kept}
    )


def range_faults(ranges: ActivationRanges, transformer: Transformer) -> Iterator[str]:
    """Compare ranges with the model that they are to be used for."""
    layers = dict(_linear_layers(transformer))
    sizes = {name: layer.in_features for name, layer in layers.items()}
    yield from _magnitude_faults(ranges.inputs, sizes, "inputs")
    sizes = {name: layer.out_features for name, layer in layers.items() if _is_kept(name)}
    yield from _magnitude_faults(ranges.kept, sizes, "outputs")
    if ranges.kept and sizes.keys() - ranges.kept.keys():
        yield "calibration: keys or values of some decoder layers are missing"
    if not 0 < ranges.hidden < math.inf:
        yield f"calibration: {ranges.hidden} is no magnitude of the decoder's output"


def _magnitude_faults(
    found: Mapping[str, Tensor], sizes: Mapping[str, int], what: str
) -> Iterator[str]:
    for name, magnitudes in found.items():
        if name not in sizes:
            yield f"calibration: the model has no layer `{name}`"
        elif magnitudes.shape != (sizes[name],):
            shape = tuple(magnitudes.shape)
            yield f"calibration: `{name}` has {sizes[name]} {what}, not {shape}"
        elif not (magnitudes.isfinite() & (magnitudes >= 0)).all():
            yield f"calibration: `{name}` has a magnitude that is negative or no number"


@torch.no_grad()
def measure_ranges(
    transformer: Transformer, sources: Sequence[Sequence[int]] = ()
) -> ActivationRanges:
    """Find the largest magnitudes while the model translates, greedily.

    Args:
        transformer: In evaluation mode.
        sources: Token ids of sentences, with EOS; a few hundred are enough. Without any, sentences of random words are
            translated, and layers whose input depends on the text are left out.

    Returns:
        The magnitudes, reproducible for the same weights.

    Raises:
        ExportError: A sentence is empty, or longer than the positions that the model learned.
    """
    config = transformer.config
    recorder = _Recorder(transformer)
    if sources:
        _check_lengths(sources, config)
        for batch in _batches(sources):
            recorder.translate(*_padded(batch, config.pad_id))
        return ActivationRanges(recorder.hidden, recorder.largest, recorder.kept)
    recorder.translate(*_random_words(transformer))
    bounded = {
        name: _MARGIN * largest
        for name, largest in recorder.largest.items()
        if _is_bounded(name, config)
    }
    return ActivationRanges(recorder.hidden, bounded)


def _linear_layers(transformer: Transformer) -> Iterator[tuple[str, nn.Linear]]:
    """All but the vocabulary's: what that reads is told apart, as `hidden`."""
    for name, module in transformer.named_modules():
        if isinstance(module, nn.Linear) and module is not transformer.output_projection:
            yield name, module


def _is_kept(name: str) -> bool:
    return name.startswith("decoder.") and name.endswith(_IS_KEPT)


def _is_bounded(name: str, config: TransformerConfig) -> bool:
    """Whether what goes into a layer is about as large with random words as with any text."""
    if name.endswith(_READS_MEMORY):  # Pre-LN: the sum of all sub-layers, unless a norm comes last
        return config.norm_order == "post" or config.final_norm
    return not name.endswith(_DEPENDS_ON_TEXT)


def _most_tokens(config: TransformerConfig, wanted: int) -> int:
    """Give as many positions as are wanted, or as many as the model has."""
    return min(wanted, config.max_positions) if config.positional_encoding == "learned" else wanted


def _check_lengths(sources: Sequence[Sequence[int]], config: TransformerConfig) -> None:
    lengths = [len(source) for source in sources]
    if not min(lengths):
        raise ExportError("calibration: a sentence must have tokens, EOS at least.")
    most = _most_tokens(config, max(lengths))
    if max(lengths) > most:
        raise ExportError(
            f"calibration: a sentence has {max(lengths)} tokens, "
            f"but the model learned {most} positions."
        )


class _Recorder:
    """Notes the largest magnitude of every input channel of every layer, of real positions only; see `kept`, too."""

    def __init__(self, transformer: Transformer) -> None:
        self.largest: dict[str, Tensor] = {}
        self.kept: dict[str, Tensor] = {}
        self.hidden = 0.0
        self._transformer = transformer

    def translate(
        self, source_ids: Tensor, source_mask: Tensor, targets: Tensor | None = None
    ) -> None:
        """Run the model over sentences with targets, or with what it says itself up to EOS."""
        model = self._transformer
        with self._watching("encoder.", source_mask):
            memory = model.encode(source_ids, source_mask)
        if targets is None:
            targets, target_mask = _translations(model, memory, source_mask)
        else:
            target_mask = torch.ones_like(targets, dtype=torch.bool)
        with self._watching("decoder.", target_mask, source_mask):
            hidden = model.decode(model.shift_right(targets), memory, source_mask)
        self.hidden = max(self.hidden, hidden[target_mask].abs().max().item())

    @contextlib.contextmanager
    def _watching(
        self, part: str, mask: Tensor, memory_mask: Tensor | None = None
    ) -> Iterator[None]:
        """Look at all that goes into the layers of one part, where the mask says so."""

        def watch(name: str, layer: nn.Module) -> RemovableHandle:
            own = memory_mask if name.endswith(_READS_MEMORY) else mask

            def note(_: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
                _raise(self.largest, name, inputs[0][own])
                if _is_kept(name):
                    _raise(self.kept, name, output[own])

            return layer.register_forward_hook(note)

        handles = [
            watch(name, layer)
            for name, layer in _linear_layers(self._transformer)
            if name.startswith(part)
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()


def _raise(largest: dict[str, Tensor], name: str, x: Tensor) -> None:
    """Let the magnitudes of a name be at least those of x, (N, K)."""
    found = x.abs().amax(0)
    known = largest.get(name)
    largest[name] = found if known is None else torch.maximum(known, found)


def _random_words(transformer: Transformer) -> tuple[Tensor, Tensor, Tensor]:
    """Random sources, each ended by EOS, whose vectors are often the largest; every other target is the model's own."""
    config = transformer.config
    length = _most_tokens(config, _LENGTH)
    generator = torch.Generator().manual_seed(0)

    def random_ids(vocab_size: int) -> Tensor:
        return torch.randint(vocab_size, (_SENTENCES, length), generator=generator)

    mask = torch.ones(_SENTENCES, length, dtype=torch.bool)
    sources = random_ids(config.source_vocab_size)
    sources[:, -1] = config.eos_id
    targets = random_ids(config.target_vocab_size)
    memory = transformer.encode(sources[::2], mask[::2])
    steps = _best_words(transformer, memory, mask[::2])
    targets[::2] = torch.stack(list(itertools.islice(steps, length)), dim=1)
    return sources, mask, targets


def _translations(
    transformer: Transformer, memory: Tensor, source_mask: Tensor
) -> tuple[Tensor, Tensor]:
    """Translate greedily; give token ids, and True up to the EOS of each row, (B, T) both."""
    config = transformer.config
    length = _most_tokens(config, min(_LONGEST, 2 * source_mask.shape[1] + 10))
    ended = torch.zeros(len(memory), dtype=torch.bool)
    chosen, is_real = [], []
    for token_ids in itertools.islice(_best_words(transformer, memory, source_mask), length):
        chosen.append(token_ids)
        is_real.append(~ended)  # the position that says EOS counts, those after it do not
        ended = ended | (token_ids == config.eos_id)
        if ended.all():
            break
    return torch.stack(chosen, dim=1), torch.stack(is_real, dim=1)


def _best_words(transformer: Transformer, memory: Tensor, source_mask: Tensor) -> Iterator[Tensor]:
    """Follow the best word of every step, (B,), without an end."""
    cache = transformer.start_cache(memory, source_mask)
    token_ids = torch.full((len(memory),), transformer.config.bos_id)
    while True:
        logits, cache = transformer.decode_step(token_ids, cache)
        token_ids = logits.argmax(-1)
        yield token_ids


def _batches(sources: Sequence[Sequence[int]]) -> Iterator[list[Sequence[int]]]:
    """Sentences of similar length together."""
    in_order = sorted(sources, key=len)
    for first in range(0, len(in_order), _SENTENCES):
        yield in_order[first : first + _SENTENCES]


def _padded(batch: Sequence[Sequence[int]], pad_id: int) -> tuple[Tensor, Tensor]:
    """Token ids and mask, (B, S) each."""
    rows = [torch.tensor(list(ids)) for ids in batch]
    ids = nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=pad_id)
    return ids, length_mask(torch.tensor([len(row) for row in rows]), ids.shape[1])
