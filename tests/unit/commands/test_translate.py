import json
import sys

import pytest

import dragoman
from commands import translate
from commands.backend import Answer, Pair


class FakeBackend:
    """Answers in upper case; "bad" fails, "long" is truncated."""

    def __init__(self) -> None:
        self.options = None

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        pass

    async def list_pairs(self):
        return [Pair("en-pt", "en", "pt")]

    async def translate(self, texts, options):
        self.options = options
        return [self._answer(text, options) for text in texts]

    def _answer(self, text, options):
        if text == "bad":
            return Answer(text="", error="the text is too long")
        alternatives = tuple(f"{text} {n}" for n in range(options.num_alternatives))
        return Answer(
            text=text.upper(), alternatives=alternatives, score=-0.5, truncated=text == "long"
        )


@pytest.fixture
def backend(monkeypatch):
    fake = FakeBackend()
    monkeypatch.setattr(translate, "open_backend", lambda arguments: fake)
    return fake


@pytest.fixture
def write(tmp_path):
    def write_file(content: bytes, name: str = "in.txt") -> str:
        path = tmp_path / name
        path.write_bytes(content)
        return str(path)

    return write_file


def test_a_text_is_printed_with_a_newline(backend, capsys) -> None:
    assert dragoman.main(["translate", "good morning"]) == 0
    assert capsys.readouterr().out == "GOOD MORNING\n"


def test_a_text_of_several_lines_goes_as_one(backend, capsys) -> None:
    assert dragoman.main(["translate", "one\n\ntwo"]) == 0
    assert capsys.readouterr().out == "ONE\n\nTWO\n"


def test_files_keep_their_line_structure(backend, capsys, write) -> None:
    first, second = write(b"a\n\nb\r\n", "1"), write(b"c", "2")

    assert dragoman.main(["translate", "--file", first, "--file", second]) == 0
    assert capsys.readouterr().out == "A\n\nB\r\nC"


def test_an_empty_file_gives_nothing(backend, capsys, write) -> None:
    assert dragoman.main(["translate", "--file", write(b"")]) == 0
    assert capsys.readouterr().out == ""


def test_a_failed_line_stays_empty_and_is_told(backend, capsys, write) -> None:
    assert dragoman.main(["translate", "--file", write(b"a\nbad\nc\n")]) == 1
    out, err = capsys.readouterr()
    assert out == "A\n\nC\n"
    assert "line 2 of" in err
    assert "too long" in err


def test_lines_before_invalid_bytes_are_translated(backend, capsys, write) -> None:
    assert dragoman.main(["translate", "--file", write(b"a\nb\n\xff\nc\n")]) == 2
    out, err = capsys.readouterr()
    assert out == "A\nB\n"
    assert "line 3" in err
    assert len(err.splitlines()) == 1


def test_options_reach_the_backend(backend) -> None:
    words = (
        "--source en --target pt-BR --model m --beam-size 2 --length-penalty 0.5 --alternatives 1"
    )

    assert dragoman.main(["translate", "x", *words.split()]) == 0
    assert backend.options.source_language == "en"
    assert backend.options.target_language == "pt-BR"
    assert backend.options.model == "m"
    assert backend.options.beam_size == 2
    assert backend.options.length_penalty == 0.5


def test_the_languages_of_the_only_model_are_taken(backend) -> None:
    dragoman.main(["translate", "x"])

    assert (backend.options.source_language, backend.options.target_language) == ("en", "pt")


def test_alternatives_follow_after_a_tab(backend, capsys) -> None:
    dragoman.main(["translate", "x", "--alternatives", "2"])

    assert capsys.readouterr().out == "X\n\tx 0\n\tx 1\n"


def test_json_has_one_object_a_line(backend, capsys, write) -> None:
    dragoman.main(["translate", "--json", "--alternatives", "1", "--file", write(b"long\nbad\n")])

    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert first == {
        "translated_text": "LONG",
        "score": -0.5,
        "truncated": True,
        "alternatives": ["long 0"],
    }
    assert second == {"translated_text": "", "error": "the text is too long"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["x", "--file", "y"], "either TEXT or --file"),
        (["--file", "/nowhere/at/all"], "there is no file"),
        (["\udcff"], "not valid UTF-8"),
    ],
)
def test_wrong_usage_is_told_in_one_line(backend, capsys, words, message) -> None:
    assert dragoman.main(["translate", *words]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert len(err.splitlines()) == 1


def test_a_server_and_a_bundle_exclude_each_other(capsys) -> None:
    assert dragoman.main(["translate", "x", "--address", "h:1", "--bundle", "b"]) == 2
    assert "--address or --bundle" in capsys.readouterr().err


def test_no_progress_is_shown_where_nobody_looks(backend, capsys, write, monkeypatch) -> None:
    monkeypatch.setattr("commands.progress._PATIENCE_SECONDS", 0.0)

    dragoman.main(["translate", "--file", write(b"a\n" * 50)])

    assert capsys.readouterr().err == ""


def test_progress_is_shown_on_a_terminal(backend, capsys, write, monkeypatch) -> None:
    monkeypatch.setattr("commands.progress._PATIENCE_SECONDS", 0.0)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)

    dragoman.main(["translate", "--file", write(b"a\n" * 50)])

    assert "50 lines" in capsys.readouterr().err
