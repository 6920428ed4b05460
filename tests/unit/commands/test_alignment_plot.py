from pathlib import Path

import pytest

import dragoman
from tests.tiny_bundles import make_checkpoint


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("checkpoint") / "model")


def test_translation_is_printed_and_drawn(checkpoint, tmp_path, capsys) -> None:
    picture = tmp_path / "plot.png"
    words = ["translate", "a cat", "--alignment-plot", str(picture), "--checkpoint"]

    assert dragoman.main([*words, str(checkpoint), "--beam-size", "1"]) == 0

    assert picture.read_bytes().startswith(b"\x89PNG")
    assert capsys.readouterr().out.endswith("\n")


def test_any_pair_can_be_drawn(checkpoint, tmp_path, capsys) -> None:
    words = ["translate", "a cat", "--alignment-plot", str(tmp_path / "plot.png")]

    assert dragoman.main([*words, "--checkpoint", str(checkpoint), "--translation", "gato"]) == 0
    assert capsys.readouterr().out == "gato\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["a cat", "--checkpoint", "c"], "need --alignment-plot"),
        (["a cat", "--translation", "gato"], "need --alignment-plot"),
        (["a cat", "--alignment-plot", "p.png"], "needs TEXT and --checkpoint"),
        (["--alignment-plot", "p.png", "--checkpoint", "c"], "needs TEXT and --checkpoint"),
        (
            ["a cat", "--alignment-plot", "p.png", "--checkpoint", "c", "--bundle", "b"],
            "goes with neither",
        ),
        (["a cat", "--alignment-plot", "p.png", "--checkpoint", "c", "--beam-size", "0"], "beam_"),
    ],
)
def test_wrong_usage_is_told(words, message, capsys) -> None:
    assert dragoman.main(["translate", *words]) == 2
    assert message in capsys.readouterr().err


def test_missing_checkpoint_is_one_line(tmp_path, capsys) -> None:
    words = ["a cat", "--alignment-plot", "p.png", "--checkpoint", str(tmp_path / "nowhere")]

    assert dragoman.main(["translate", *words]) == 1
    assert len(capsys.readouterr().err.splitlines()) == 1
