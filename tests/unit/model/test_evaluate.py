from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from model.errors import DataError
from model.evaluate import evaluate, score_translations, to_dict, to_table

SOURCES = ["one", "two"]
REFERENCES = [
    "The committee decided on Tuesday that the budget would not be approved.",
    "A small cat sat on the red mat and looked at the rain.",
]


def test_perfect_translations_score_100() -> None:
    scores = evaluate(lambda texts: REFERENCES, SOURCES, REFERENCES)
    assert [(score.metric, round(score.value, 6)) for score in scores] == [
        ("BLEU", 100.0),
        ("chrF", 100.0),
    ]


def test_translator_gets_the_sources_in_order() -> None:
    seen: list[str] = []

    def translate(texts: list[str]) -> list[str]:
        seen.extend(texts)
        return REFERENCES[::-1]

    scores = evaluate(translate, SOURCES, REFERENCES)
    assert seen == SOURCES
    assert scores[0].value < 50


def test_bleu_is_the_published_formula() -> None:
    # 4 of 5 words, 3 of 4 pairs, 2 of 3 triples, 1 of 2 quadruples, no brevity penalty.
    (bleu, _) = score_translations(["a b c d x"], ["a b c d e"])
    expected = 100 * (4 / 5 * 3 / 4 * 2 / 3 * 1 / 2) ** 0.25
    assert bleu.value == pytest.approx(expected)


def test_signatures_say_how_it_was_computed() -> None:
    bleu, chrf = score_translations(REFERENCES, REFERENCES)
    assert "tok:13a" in bleu.signature
    assert "smooth:exp" in bleu.signature
    assert "nc:6|nw:0" in chrf.signature
    assert "version:" in chrf.signature


def test_different_numbers_of_lines_are_refused() -> None:
    with pytest.raises(DataError, match="as many references as sources, but there are 2 and 1"):
        evaluate(lambda texts: texts, ["one"], REFERENCES)
    with pytest.raises(
        DataError, match="as many translations as references, but there are 1 and 2"
    ):
        evaluate(lambda texts: texts[:1], SOURCES, REFERENCES)
    with pytest.raises(DataError, match="no sources"):
        evaluate(lambda texts: texts, [], [])


def test_scores_become_json_and_a_table() -> None:
    scores = score_translations(REFERENCES, REFERENCES)
    values = json.loads(json.dumps(to_dict(scores, test_set="flores", num_sentences=2)))
    assert values["scores"][0] == {
        "metric": "BLEU",
        "value": pytest.approx(100.0),
        "signature": scores[0].signature,
    }
    screen = io.StringIO()
    console = Console(width=120, file=screen)
    console.print(to_table(scores, test_set="flores", num_sentences=2))
    text = screen.getvalue()
    assert "flores, 2 sentences" in text
    assert "chrF" in text
    assert "100.00" in text
