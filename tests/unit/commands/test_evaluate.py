import json

import pytest

import dragoman
from commands import evaluate
from commands.backend import Answer, Pair


class FakeBackend:
    """Gives every text back as it is; "bad" fails."""

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        pass

    async def list_pairs(self):
        return [Pair("en-en", "en", "en")]

    async def translate(self, texts, options):
        return [Answer(text=text, error="too long" if text == "bad" else "") for text in texts]


@pytest.fixture
def test_set(tmp_path, monkeypatch):
    monkeypatch.setattr(evaluate, "open_backend", lambda arguments: FakeBackend())

    def write(source: str, reference: str) -> list[str]:
        (tmp_path / "set.en").write_text(source)
        (tmp_path / "set.ref").write_text(reference)
        return ["--source", str(tmp_path / "set.en"), "--reference", str(tmp_path / "set.ref")]

    return write


SENTENCES = "The house stands on the hill.\nIt is a very old house, they say.\n"


def test_a_perfect_translation_scores_a_hundred(test_set, capsys) -> None:
    assert dragoman.main(["evaluate", *test_set(SENTENCES, SENTENCES), "--json"]) == 0

    found = json.loads(capsys.readouterr().out)
    assert found["test_set"] == "set.en"
    assert found["num_sentences"] == 2
    assert {each["metric"]: round(each["value"]) for each in found["scores"]} == {
        "BLEU": 100,
        "chrF": 100,
    }
    assert all("version" in each["signature"] for each in found["scores"])


def test_people_get_a_table(test_set, capsys) -> None:
    words = [*test_set(SENTENCES, SENTENCES), "--test-set", "my set"]

    assert dragoman.main(["evaluate", *words]) == 0
    shown = capsys.readouterr().out
    assert "my set, 2 sentences" in shown
    assert "BLEU" in shown
    assert "100.00" in shown


def test_files_of_different_length_are_a_usage_error(test_set, capsys) -> None:
    assert dragoman.main(["evaluate", *test_set("a\nb\n", "a\n")]) == 2
    assert "2 lines" in capsys.readouterr().err


def test_a_text_that_fails_ends_the_measurement(test_set, capsys) -> None:
    assert dragoman.main(["evaluate", *test_set("a\nbad\n", "a\nb\n")]) == 1
    assert "line 2 of" in capsys.readouterr().err


def test_an_empty_test_set_is_an_error(test_set, capsys) -> None:
    assert dragoman.main(["evaluate", *test_set("", "")]) == 1
    assert "There are no" in capsys.readouterr().err


def test_one_thing_is_measured_at_a_time(test_set, capsys) -> None:
    words = [*test_set("a\n", "a\n"), "--checkpoint", "c", "--address", "h:1"]

    assert dragoman.main(["evaluate", *words]) == 2
    assert "one of" in capsys.readouterr().err
