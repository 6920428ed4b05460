"""Names, axes and element types of the encoder and decoder graphs: the only dictionary between ONNX names and ours.

Torch-free, shared by the exporter, the parity checks and the serving engine. Names follow optimum's where a
counterpart exists. Shape letters: `B` sentences, `R` decoder rows, `S` source length, `C` cache capacity, `H` heads,
`Dh` head size, `V` vocabulary, `J` lanes of one sentence in cross-attention (at least 2), `N` candidates a row,
`E` edits, `M` rows whose whole distribution is wanted. With a shortlist: `U` words of all lists of a step, `W` blocks
of `VOCAB_BLOCK` words in the longest of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

__all__ = [
    "CANDIDATE_IDS",
    "CANDIDATE_LOG_PROBS",
    "CHUNK_BIASES",
    "CHUNK_ROWS",
    "CHUNK_SCALES",
    "CHUNK_WEIGHTS",
    "CHUNK_WORDS",
    "COLUMN_BIASES",
    "COLUMN_IDS",
    "COLUMN_SCALES",
    "COLUMN_WEIGHTS",
    "DISABLED_OPTIMIZERS",
    "EDIT_BIASES",
    "EDIT_POSITIONS",
    "EDIT_SCALES",
    "ENCODER_MASK",
    "FREQUENT_BIASES",
    "FREQUENT_SCALES",
    "FREQUENT_WEIGHTS",
    "INPUT_IDS",
    "LANE_CHUNKS",
    "LANE_HEADS",
    "LANE_ROWS",
    "LIST_IDS",
    "LOG_PROBS",
    "LOG_PROB_ROWS",
    "MIN_CAPACITY",
    "MIN_FREQUENT",
    "MIN_LANES",
    "MIN_SOURCE_LENGTH",
    "NUM_CANDIDATES",
    "PAST_LENGTHS",
    "ROW_HEADS",
    "ROW_LANES",
    "ROW_SENTENCES",
    "SATURATING_CPU_CONFIG",
    "SOURCE_MASK",
    "TOTAL_LENGTH",
    "VOCAB_BLOCK",
    "TensorSpec",
    "cache_dtype",
    "chunk_inputs",
    "column_inputs",
    "column_outputs",
    "cross_key",
    "cross_value",
    "decoder_inputs",
    "decoder_outputs",
    "encoder_inputs",
    "encoder_outputs",
    "frequent_inputs",
    "padded_frequent",
    "padded_vocab_size",
    "past_self_key",
    "past_self_value",
    "present_cross_key",
    "present_cross_value",
    "present_self_key",
    "present_self_value",
    "self_cache_dtype",
    "shortlist_decoder_inputs",
    "shortlist_decoder_outputs",
    "tensor_faults",
]

DISABLED_OPTIMIZERS = ("SkipLayerNormFusion",)
"""Optimizers of ONNX Runtime that a session of these graphs must do without: the fused operator is 7 times slower."""

SATURATING_CPU_CONFIG = {"session.x64quantprecision": "1"}
"""Session configuration for x86 processors without VNNI, whose 8-bit products would overflow silently."""

MIN_SOURCE_LENGTH = 2
"""Least padded source length S: a single position runs another kernel, with other bits."""

MIN_LANES = 2
"""Least number of lanes J, for the same reason, where a sentence may have several rows."""

MIN_CAPACITY = 2
"""Least cache capacity C: with 1 the runtime takes the step for a prompt."""

VOCAB_BLOCK = 64
"""The vocabulary of the graphs is padded to whole blocks of so many words; the padding has log-probability -inf."""

CHUNK_WORDS = 3 * VOCAB_BLOCK
"""Words of a chunk: what is multiplied for one sentence at once. An odd number of blocks, because weights whose rows
are 512 bytes apart, or a multiple of it, get into each other's way in the processor's caches."""

MIN_FREQUENT = 5 * VOCAB_BLOCK
"""Least number of places for frequent words, F."""

INPUT_IDS = "input_ids"
SOURCE_MASK = "attention_mask"
ENCODER_MASK = "encoder_attention_mask"
PAST_LENGTHS = "past_lengths"
TOTAL_LENGTH = "total_length"
LANE_HEADS = "lane_heads"
ROW_HEADS = "row_heads"
ROW_SENTENCES = "row_sentences"
NUM_CANDIDATES = "num_candidates"
EDIT_POSITIONS = "edit_positions"
EDIT_SCALES = "edit_scales"
EDIT_BIASES = "edit_biases"
CANDIDATE_IDS = "candidate_ids"
CANDIDATE_LOG_PROBS = "candidate_log_probs"
LOG_PROBS = "log_probs"
LOG_PROB_ROWS = "log_prob_rows"
COLUMN_IDS = "column_ids"
COLUMN_WEIGHTS = "column_weights"
COLUMN_SCALES = "column_scales"
COLUMN_BIASES = "column_biases"
FREQUENT_WEIGHTS = "frequent_weights"
FREQUENT_SCALES = "frequent_scales"
FREQUENT_BIASES = "frequent_biases"
CHUNK_WEIGHTS = "chunk_weights"
CHUNK_SCALES = "chunk_scales"
CHUNK_BIASES = "chunk_biases"
CHUNK_ROWS = "chunk_rows"
LANE_CHUNKS = "lane_chunks"
LANE_ROWS = "lane_rows"
ROW_LANES = "row_lanes"
LIST_IDS = "list_ids"


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One graph input or output. An axis is a number when it is fixed and a letter when it is dynamic."""

    name: str
    dtype: str
    axes: tuple[str | int, ...]


def padded_vocab_size(vocab_size: int) -> int:
    """Round a vocabulary up to whole blocks of `VOCAB_BLOCK`."""
    return -(-vocab_size // VOCAB_BLOCK) * VOCAB_BLOCK


def padded_frequent(count: int) -> int:
    """Give the places F for so many frequent words: an odd number of blocks, for the same reason as in a chunk.

    There are `MIN_FREQUENT` at least: a narrower float32 product adds up in another order.
    """
    blocks = max(MIN_FREQUENT, count + VOCAB_BLOCK - 1) // VOCAB_BLOCK
    return (blocks + 1 - blocks % 2) * VOCAB_BLOCK


def past_self_key(layer: int) -> str:
    """Self-attention keys of the past, (R, H, C, Dh). Bound to the same memory as `present_self_key`."""
    return f"past_key_values.{layer}.decoder.key"


def past_self_value(layer: int) -> str:
    """Self-attention values of the past, (R, H, C, Dh)."""
    return f"past_key_values.{layer}.decoder.value"


def present_self_key(layer: int) -> str:
    """Self-attention keys with the new token written at position `past_lengths[row]`."""
    return f"present.{layer}.decoder.key"


def present_self_value(layer: int) -> str:
    """Self-attention values with the new token written at position `past_lengths[row]`."""
    return f"present.{layer}.decoder.value"


def cross_key(layer: int) -> str:
    """Projected cross-attention keys as the decoder reads them, stored transposed: (B, H, Dh, S)."""
    return f"past_key_values.{layer}.encoder.key"


def cross_value(layer: int) -> str:
    """Projected cross-attention values as the decoder reads them: (B, H, S, Dh)."""
    return f"past_key_values.{layer}.encoder.value"


def present_cross_key(layer: int) -> str:
    """Projected cross-attention keys as the encoder graph gives them: (B, H, Dh, S)."""
    return f"present.{layer}.encoder.key"


def present_cross_value(layer: int) -> str:
    """Projected cross-attention values as the encoder graph gives them: (B, H, S, Dh)."""
    return f"present.{layer}.encoder.value"


def encoder_inputs() -> tuple[TensorSpec, ...]:
    """Inputs of the encoder graph. The mask is 1 on real source tokens and 0 on padding."""
    return (
        TensorSpec(INPUT_IDS, "int64", ("B", "S")),
        TensorSpec(SOURCE_MASK, "int64", ("B", "S")),
    )


def cache_dtype(precision: str) -> str:
    """Element type of caches, of what the encoder hands to the decoder, and so of the vectors between layers."""
    return "float16" if precision == "float16" else "float32"


def encoder_outputs(
    num_layers: int, num_heads: int, head_size: int, precision: str = "float32"
) -> tuple[TensorSpec, ...]:
    """Outputs of the encoder graph: projected keys and values for each decoder layer's cross-attention."""
    specs: list[TensorSpec] = []
    dtype = cache_dtype(precision)
    for layer in range(num_layers):
        specs.append(TensorSpec(present_cross_key(layer), dtype, ("B", num_heads, head_size, "S")))
        specs.append(
            TensorSpec(present_cross_value(layer), dtype, ("B", num_heads, "S", head_size))
        )
    return tuple(specs)


def self_cache_dtype(precision: str, int8_caches: bool) -> str:
    """Element type of what the decoder's self-attention keeps."""
    return "int8" if int8_caches else cache_dtype(precision)


def decoder_inputs(
    num_layers: int,
    num_heads: int,
    head_size: int,
    precision: str = "float32",
    *,
    int8_caches: bool = False,
) -> tuple[TensorSpec, ...]:
    """Inputs of the decoder graph, one step of `R` rows.

    `input_ids` is the last token of each row and `past_lengths` how many tokens its cache already holds, which is
    also the position of the new token; `total_length` is the cache capacity `C` (ONNX Runtime wants it as a
    scalar). `lane_heads` says for each head of each lane of a sentence which of the rows' heads it is (row * H +
    head; unused lanes repeat any valid row), and `row_heads` for each head of each row where among the lanes it is
    ((sentence * H + head) * J + lane): see `export/lanes.py`. An edit turns the log-probability at a position (row
    * V + token, V padded to whole blocks) into `log_prob * scale + bias`; a ban is scale 1 and bias -inf; no
    position may be edited twice. `num_candidates` is at most the vocabulary. `log_prob_rows` are the rows whose
    whole distribution is wanted, none in most steps.
    """
    specs = [
        TensorSpec(INPUT_IDS, "int64", ("R",)),
        TensorSpec(PAST_LENGTHS, "int32", ("R",)),
        TensorSpec(TOTAL_LENGTH, "int32", ()),
        TensorSpec(ENCODER_MASK, "int64", ("B", "S")),
        TensorSpec(LANE_HEADS, "int64", ("B", num_heads, "J")),
        TensorSpec(ROW_HEADS, "int64", ("R", num_heads)),
        TensorSpec(NUM_CANDIDATES, "int64", (1,)),
        TensorSpec(EDIT_POSITIONS, "int64", ("E",)),
        TensorSpec(EDIT_SCALES, "float32", ("E",)),
        TensorSpec(EDIT_BIASES, "float32", ("E",)),
        TensorSpec(LOG_PROB_ROWS, "int64", ("M",)),
    ]
    dtype, own_dtype = cache_dtype(precision), self_cache_dtype(precision, int8_caches)
    for layer in range(num_layers):
        cache_axes = ("R", num_heads, "C", head_size)
        specs.append(TensorSpec(past_self_key(layer), own_dtype, cache_axes))
        specs.append(TensorSpec(past_self_value(layer), own_dtype, cache_axes))
        specs.append(TensorSpec(cross_key(layer), dtype, ("B", num_heads, head_size, "S")))
        specs.append(TensorSpec(cross_value(layer), dtype, ("B", num_heads, "S", head_size)))
    return tuple(specs)


def decoder_outputs(  # noqa: PLR0913 - all that the outputs depend on
    num_layers: int,
    num_heads: int,
    head_size: int,
    vocab_size: int,
    precision: str = "float32",
    *,
    int8_caches: bool = False,
) -> tuple[TensorSpec, ...]:
    """Outputs of the decoder graph: the best `N` candidates of each row, best first, and the caches.

    Equal candidates come in the order of their ids. `log_probs` holds the whole distribution, after the edits, of
    each row that `log_prob_rows` names.
    """
    specs = [
        TensorSpec(CANDIDATE_IDS, "int64", ("R", "N")),
        TensorSpec(CANDIDATE_LOG_PROBS, "float32", ("R", "N")),
        TensorSpec(LOG_PROBS, "float32", ("M", padded_vocab_size(vocab_size))),
    ]
    dtype = self_cache_dtype(precision, int8_caches)
    for layer in range(num_layers):
        cache_axes = ("R", num_heads, "C", head_size)
        specs.append(TensorSpec(present_self_key(layer), dtype, cache_axes))
        specs.append(TensorSpec(present_self_value(layer), dtype, cache_axes))
    return tuple(specs)


def column_inputs() -> tuple[TensorSpec, ...]:
    """Inputs of the columns graph: the target words whose columns of the output projection are wanted."""
    return (TensorSpec(COLUMN_IDS, "int64", ("G", "U")),)


def column_outputs(d_model: int, precision: str) -> tuple[TensorSpec, ...]:
    """Outputs of the columns graph: weights (G, D, U), biases and, with int8, scales, (G, 1, U) each."""
    names = (COLUMN_WEIGHTS, COLUMN_BIASES, COLUMN_SCALES)
    return _column_specs(names, d_model, precision, "G", "U")


def _column_specs(
    names: tuple[str, str, str], d_model: int, precision: str, groups: str | int, words: str | int
) -> tuple[TensorSpec, ...]:
    is_int8 = precision == "int8"
    dtypes = ("int8" if is_int8 else "float32", "float32", "float32")
    specs = tuple(
        TensorSpec(name, dtype, (groups, rows, words))
        for name, dtype, rows in zip(names, dtypes, (d_model, 1, 1), strict=True)
    )
    return specs if is_int8 else specs[:2]


def shortlist_decoder_inputs(  # noqa: PLR0913 - all that the inputs depend on
    num_layers: int,
    num_heads: int,
    head_size: int,
    d_model: int,
    precision: str,
    *,
    int8_caches: bool = False,
) -> tuple[TensorSpec, ...]:
    """Inputs of the decoder graph that looks at the words of each sentence's list only.

    Those of `decoder_inputs`, and the columns of the words: `F` frequent ones, which are in all lists, and those that a
    sentence has for itself in chunks of 192; what is filled up has a bias of -inf. Logits are computed by lane.
    `lane_rows` is the row in each lane, `row_lanes` the lane of each row, sentence * J + lane, and `row_sentences` its
    sentence. `chunk_rows` are the rows in the lanes of each chunk's sentence. `lane_chunks` says where the logits of a
    lane's own words are, chunk * J + lane; the `P` chunks of the longest list are as many for all. `list_ids` are the
    words in the order of the logits: F / 64 blocks of frequent ones, then 3 P blocks. An edit's position, and what
    `log_prob_rows` names, are by lane: lane * W * 64 + place in the list.
    """
    common = decoder_inputs(num_layers, num_heads, head_size, int8_caches=int8_caches)
    return (
        *common,
        *frequent_inputs(d_model, precision),
        *chunk_inputs(d_model, precision),
        TensorSpec(LANE_ROWS, "int64", ("B", "J")),
        TensorSpec(ROW_LANES, "int64", ("R",)),
        TensorSpec(ROW_SENTENCES, "int64", ("R",)),
        TensorSpec(CHUNK_ROWS, "int64", ("G", "J")),
        TensorSpec(LANE_CHUNKS, "int64", ("B", "J", "P")),
        TensorSpec(LIST_IDS, "int64", ("B", "W", VOCAB_BLOCK)),
    )


def frequent_inputs(d_model: int, precision: str) -> tuple[TensorSpec, ...]:
    """Columns of the words that are in all lists, as the shortlist's decoder reads them: see `column_outputs`."""
    names = (FREQUENT_WEIGHTS, FREQUENT_BIASES, FREQUENT_SCALES)
    return tuple(
        TensorSpec(spec.name, spec.dtype, spec.axes[1:] if spec.name == names[0] else ("F",))
        for spec in _column_specs(names, d_model, precision, 1, "F")
    )


def chunk_inputs(d_model: int, precision: str) -> tuple[TensorSpec, ...]:
    """Columns of sentences' own words, as the shortlist's decoder reads them: see `column_outputs`."""
    names = (CHUNK_WEIGHTS, CHUNK_BIASES, CHUNK_SCALES)
    return _column_specs(names, d_model, precision, "G", CHUNK_WORDS)


def shortlist_decoder_outputs(
    num_layers: int, num_heads: int, head_size: int, *, int8_caches: bool = False
) -> tuple[TensorSpec, ...]:
    """Outputs of the shortlist's decoder graph: as `decoder_outputs`, but `log_probs` go over the lane's list.

    Equal candidates come in the order of their places in the list: frequent words first.
    """
    common = decoder_outputs(
        num_layers, num_heads, head_size, vocab_size=VOCAB_BLOCK, int8_caches=int8_caches
    )
    own = TensorSpec(LOG_PROBS, "float32", ("M", "W", VOCAB_BLOCK))
    return tuple(own if spec.name == LOG_PROBS else spec for spec in common)


def tensor_faults(
    what: str, found: Sequence[TensorSpec], expected: Sequence[TensorSpec]
) -> Iterator[str]:
    """Compare the inputs or outputs of a graph with the signature; give every fault as a sentence."""
    present = {spec.name: spec for spec in found}
    known = {spec.name for spec in expected}
    yield from (f"{what} {name!r} is unknown" for name in present if name not in known)
    for spec in expected:
        actual = present.get(spec.name)
        if actual is None:
            yield f"{what} {spec.name!r} is missing"
        elif actual != spec:
            yield (
                f"{what} {spec.name!r} must be {spec.dtype} {spec.axes}, "
                f"but is {actual.dtype} {actual.axes}"
            )
