"""Text for a shortlist: pairs as they are, sources alone through the model, either column first."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from commands import export
from commands.errors import CommandError
from commands.shortlist_text import create_shortlist, read_token_pairs
from export.shortlist_builder import LEAST_COUNT, NUM_BEST, NUM_FREQUENT, build_shortlist
from model.errors import DataError
from model.tokenizer import Tokenizer
from tests.tiny_bundles import make_checkpoint
from tests.tiny_models import make_tokenizer


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return make_tokenizer()


def write(path: Path, *lines: str) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def never(texts: list[str]) -> list[str]:
    pytest.fail(f"nothing is to be translated, but {texts}")


def read(
    tokenizer: Tokenizer, path: Path, *, is_reversed: bool = False, translate: object = never
) -> list[tuple[str, str]]:
    pairs = read_token_pairs([(path, is_reversed)], tokenizer, translate)  # type: ignore[arg-type]
    found, source, target = [], 0, 0
    for num_source, num_target in zip(
        pairs.source_lengths.tolist(), pairs.target_lengths.tolist(), strict=True
    ):
        found.append(
            (
                tokenizer.decode_source(pairs.source_ids[source : source + num_source].tolist()),
                tokenizer.decode_target(pairs.target_ids[target : target + num_target].tolist()),
            )
        )
        source, target = source + num_source, target + num_target
    return found


def test_pairs_are_taken_as_they_are(tokenizer: Tokenizer, tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "the cat\to gato", "the rain\ta chuva")
    assert read(tokenizer, path) == [("the cat", "o gato"), ("the rain", "a chuva")]


def test_the_target_may_stand_first(tokenizer: Tokenizer, tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "o gato\tthe cat")
    assert read(tokenizer, path, is_reversed=True) == [("the cat", "o gato")]


def test_sources_alone_are_translated_beside_pairs(tokenizer: Tokenizer, tmp_path: Path) -> None:
    asked: list[list[str]] = []

    def translate(texts: list[str]) -> list[str]:
        asked.append(texts)
        return [{"the cat": "o gato", "the mat": ""}[text] for text in texts]

    path = write(tmp_path / "a.txt", "the cat", "the rain\ta chuva", "the mat")
    found = read(tokenizer, path, translate=translate)
    assert found == [("the cat", "o gato"), ("the rain", "a chuva")]
    assert asked == [["the cat", "the mat"]]


def test_a_side_that_is_empty_or_very_long_is_left_out(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    path = write(tmp_path / "a.tsv", "\to gato", "the cat\t", "the cat " * 400 + "\to gato", "a\tb")
    assert read(tokenizer, path) == [("a", "b")]


@pytest.mark.parametrize(("line", "is_reversed"), [("a\tb\tc", False), ("a", True)])
def test_a_line_of_other_columns_is_named(
    tokenizer: Tokenizer, tmp_path: Path, line: str, is_reversed: bool
) -> None:
    path = write(tmp_path / "a.tsv", "a\tb", line)
    with pytest.raises(DataError, match=r"a\.tsv:2: there must be one tab"):
        read(tokenizer, path, is_reversed=is_reversed)


def test_text_without_a_pair_makes_no_shortlist(tmp_path: Path) -> None:
    checkpoint = make_checkpoint(tmp_path / "checkpoint")
    path = write(tmp_path / "a.tsv", "\t")
    with pytest.raises(CommandError, match="no text to make a shortlist from"):
        create_shortlist(checkpoint, [(path, False)], build_shortlist, never)  # type: ignore[arg-type]


def parse(tmp_path: Path, *words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    export.add_arguments(parser)
    places = [str(tmp_path / "checkpoint"), str(tmp_path / "bundle")]
    return parser.parse_args(
        [*places, "--source", "en", "--target", "pt", "--license", "MIT", *words]
    )


def test_a_shortlist_that_exists_and_text_for_one_do_not_go_together(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "a\tb")
    arguments = parse(tmp_path, "--shortlist", str(path), "--shortlist-text", str(path))
    with pytest.raises(CommandError, match="either --shortlist or text"):
        export.run(arguments)
    for option in ("--shortlist-best", "--shortlist-frequent"):
        with pytest.raises(CommandError, match=f"{option} must be at least 1"):
            export.run(parse(tmp_path, "--shortlist-text", str(path), option, "0"))
    for option in ("--shortlist-best=5", "--shortlist-frequent=5", "--shortlist-least=0.2"):
        for others in ((), ("--shortlist", str(path))):
            with pytest.raises(CommandError, match=r"goes with --shortlist-text"):
                export.run(parse(tmp_path, *others, option))
    for value in ("-1", "nan", "inf"):
        with pytest.raises(CommandError, match="--shortlist-least must be a finite number"):
            export.run(parse(tmp_path, "--shortlist-text", str(path), f"--shortlist-least={value}"))
    with pytest.raises(CommandError, match="there is no file"):
        export.run(parse(tmp_path, "--shortlist-reversed", str(tmp_path / "nothing")))


def test_a_file_that_is_no_shortlist_is_one_message(tmp_path: Path) -> None:
    make_checkpoint(tmp_path / "checkpoint")
    path = write(tmp_path / "a.npz", "no archive")
    with pytest.raises(CommandError, match="it is no shortlist"):
        export.run(parse(tmp_path, "--shortlist", str(path)))
    assert not (tmp_path / "bundle").exists()


def test_the_defaults_of_the_command_are_those_of_the_builder() -> None:
    assert export._SHORTLIST_DEFAULTS == {
        "best": NUM_BEST,
        "frequent": NUM_FREQUENT,
        "least": LEAST_COUNT,
    }
