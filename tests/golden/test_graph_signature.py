"""Graphs outlive the program that made them: a change of their names or axes is a change of the bundle format."""

from __future__ import annotations

from collections.abc import Sequence

from export.signature import (
    TensorSpec,
    decoder_inputs,
    decoder_outputs,
    encoder_inputs,
    encoder_outputs,
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
    ]
    assert_matches_golden("graph_signature.txt", "\n".join(parts) + "\n")
