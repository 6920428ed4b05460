"""BLEU and chrF of any translator, by sacrebleu, with the signature that makes a number comparable (Post 2018)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import sacrebleu
from rich.table import Table

from model.errors import DataError

Translate = Callable[[list[str]], list[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """One number and how it was computed."""

    metric: str
    """"BLEU" or "chrF"."""

    value: float
    """0 to 100; higher is better."""

    signature: str
    """sacrebleu's: who computes with the same one gets the same number."""


def evaluate(
    translate: Translate, sources: Sequence[str], references: Sequence[str]
) -> list[Score]:
    """Translate a test set and score it.

    Args:
        translate: Gives one translation for each text, in order: a torch model (`model.generate.create_translate`), a
            served engine, a file that was translated before.
        sources: Texts to translate.
        references: Their human translations, line by line.

    Returns:
        BLEU, then chrF.

    Raises:
        DataError: The numbers of sources, references and translations differ, or there are none.
    """
    _require_same_length("references", references, "sources", sources)
    translations = translate(list(sources))
    return score_translations(translations, references)


def score_translations(translations: Sequence[str], references: Sequence[str]) -> list[Score]:
    """Score translations that exist already; as `evaluate` otherwise."""
    _require_same_length("translations", translations, "references", references)
    metrics = {"BLEU": sacrebleu.BLEU(), "chrF": sacrebleu.CHRF()}
    scores = []
    for name, metric in metrics.items():
        value = metric.corpus_score(list(translations), [list(references)]).score
        signature = str(metric.get_signature())
        scores.append(Score(metric=name, value=float(value), signature=signature))
    return scores


def to_dict(scores: Sequence[Score], *, test_set: str, num_sentences: int) -> dict[str, Any]:
    """Give scores as plain values for JSON."""
    return {
        "test_set": test_set,
        "num_sentences": num_sentences,
        "scores": [asdict(score) for score in scores],
    }


def to_table(scores: Sequence[Score], *, test_set: str, num_sentences: int) -> Table:
    """Give scores as a table for a terminal."""
    table = Table(title=f"{test_set}, {num_sentences} sentences")
    table.add_column("metric")
    table.add_column("score", justify="right")
    table.add_column("signature", overflow="fold")
    for score in scores:
        table.add_row(score.metric, f"{score.value:.2f}", score.signature)
    return table


def _require_same_length(
    name: str, lines: Sequence[str], other_name: str, other: Sequence[str]
) -> None:
    if not other:
        raise DataError(f"There are no {other_name}.")
    if len(lines) != len(other):
        raise DataError(
            f"There must be as many {name} as {other_name}, but there are {len(lines)} and {len(other)}."
        )
