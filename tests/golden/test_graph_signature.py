"""Graphs outlive the program that made them: a change of their names or axes is a change of the bundle format."""

from __future__ import annotations

from collections.abc import Sequence

from export.signature import (
    TensorSpec,
    column_inputs,
    column_outputs,
    decoder_inputs,
    decoder_outputs,
    encoder_inputs,
    encoder_outputs,
    shortlist_decoder_inputs,
    shortlist_decoder_outputs,
)
from tests.golden_files import assert_matches_golden


def lines(title: str, specs: Sequence[TensorSpec]) -> list[str]:
    return [title, *(f"  {s.name} {s.dtype} ({', '.join(map(str, s.axes))})" for s in specs)]


def test_graph_signatures_are_unchanged() -> None:
    parts = [
        *lines("encoder inputs", encoder_inputs()),
        *lines("encoder outputs, 2 layers, 8 heads of 32", encoder_outputs(2, 8, 32)),
        *lines("decoder inputs, 2 layers, 8 heads of 32", decoder_inputs(2, 8, 32)),
        *lines(
            "decoder outputs, 2 layers, 8 heads of 32, 1000 words", decoder_outputs(2, 8, 32, 1000)
        ),
        *lines("encoder outputs, 1 layer, float16", encoder_outputs(1, 8, 32, "float16")),
        *lines("decoder inputs, 1 layer, float16", decoder_inputs(1, 8, 32, "float16")),
        *lines("decoder outputs, 1 layer, float16", decoder_outputs(1, 8, 32, 1000, "float16")),
        *lines("columns inputs", column_inputs()),
        *lines("columns outputs, 256 wide, int8", column_outputs(256, "int8")),
        *lines("columns outputs, 256 wide, float32", column_outputs(256, "float32")),
        *lines(
            "shortlist decoder inputs, 1 layer, 8 heads of 32, int8",
            shortlist_decoder_inputs(1, 8, 32, 256, "int8"),
        ),
        *lines(
            "shortlist decoder outputs, 1 layer, 8 heads of 32", shortlist_decoder_outputs(1, 8, 32)
        ),
    ]
    assert_matches_golden("graph_signature.txt", "\n".join(parts) + "\n")
