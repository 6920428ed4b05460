import json

import pytest

import dragoman
from commands import distill
from commands.backend import Answer, Options, Pair, choose_model
from commands.errors import CommandError


class FakeBackend:
    """Answers in upper case; "bad" fails, and a call with "crash" fails as a whole."""

    def __init__(self) -> None:
        self.options = None
        self.closed = False

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        self.closed = True

    async def list_pairs(self):
        return [Pair("en-pt", "en", "pt", "7", "int8")]

    async def translate(self, texts, options):
        self.options = options
        if "crash" in texts:
            raise CommandError("the engine died.")
        return [
            Answer(text="" if text == "bad" else text.upper(), error="no" * (text == "bad"))
            for text in texts
        ]


@pytest.fixture
def backend(monkeypatch):
    fake = FakeBackend()
    monkeypatch.setattr(distill, "open_backend", lambda arguments: fake)
    return fake


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.en"
    path.write_text("".join(f"line {number}\n" for number in range(500)) + "bad\n\n")
    return path


def test_text_becomes_training_data_with_a_report(backend, text, tmp_path, capsys) -> None:
    job = tmp_path / "job"

    assert dragoman.main(["distill", str(text), str(job), "--beam-size", "2"]) == 0

    pairs = (job / "pairs.tsv").read_text().splitlines()
    assert pairs == [f"line {number}\tLINE {number}" for number in range(500)]
    shown = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert shown == [
        ["lines", "502", "100.00", "%"],
        ["failed", "1", "0.20", "%"],
        ["empty", "1", "0.20", "%"],
        ["kept", "500", "99.60", "%"],
        [str(job / "pairs.tsv")],
    ]
    assert backend.options == Options(source_language="en", target_language="pt", beam_size=2)
    assert backend.closed


def test_folder_remembers_who_translates(backend, text, tmp_path, capsys) -> None:
    job = tmp_path / "job"
    assert dragoman.main(["distill", str(text), str(job)]) == 0
    teacher = json.loads((job / "job.json").read_text())["teacher"]
    assert (teacher["model"], teacher["version"], teacher["precision"]) == ("en-pt", "7", "int8")

    assert dragoman.main(["distill", str(text), str(job), "--beam-size", "4"]) == 1
    assert "another teacher or other options" in capsys.readouterr().err


def test_failed_call_keeps_what_came_before_it(backend, text, tmp_path, capsys) -> None:
    job = tmp_path / "job"
    lines = text.read_text().splitlines()
    text.write_text("\n".join([*lines[:320], "crash", *lines[321:]]) + "\n")

    assert dragoman.main(["distill", str(text), str(job)]) == 1
    assert "the engine died." in capsys.readouterr().err
    assert backend.closed
    done = len((job / "translations.jsonl").read_text().splitlines())
    assert 0 < done <= 320
    assert not (job / "pairs.tsv").exists()


def test_filters_are_options(backend, text, tmp_path) -> None:
    job = tmp_path / "job"
    text.write_text("one two three\n" * 2)

    words = ["--keep-copies", "--keep-duplicates", "--max-repeats", "0"]
    assert dragoman.main(["distill", str(text), str(job), *words]) == 0
    assert (job / "pairs.tsv").read_text() == "one two three\tONE TWO THREE\n" * 2

    assert dragoman.main(["distill", str(text), str(job)]) == 0
    assert json.loads((job / "report.json").read_text())["removed"]["copy"] == 2


def test_wrong_usage_is_told_before_a_model_is_loaded(backend, text, tmp_path, capsys) -> None:
    assert dragoman.main(["distill", "nowhere.txt", str(tmp_path)]) == 2
    assert "there is no file nowhere.txt" in capsys.readouterr().err
    assert dragoman.main(["distill", str(text), str(tmp_path), "--max-length-ratio", "0.5"]) == 2
    assert "`max_length_ratio` must be 0 or at least 1" in capsys.readouterr().err
    assert not backend.closed


def test_model_with_the_closest_languages_is_the_teacher() -> None:
    pairs = [Pair("a", "en", "pt"), Pair("b", "en", "pt-BR"), Pair("c", "en", "pt")]

    def choose(target: str) -> str:
        return choose_model(pairs, Options(source_language="en", target_language=target)).model

    assert choose("pt") == "a"
    assert choose("pt-BR") == "b"
    with pytest.raises(CommandError, match="no loaded model fits"):
        choose("de")
