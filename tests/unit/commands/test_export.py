import argparse
import json

import pytest

from commands import export
from commands.errors import CommandError
from tests.tiny_bundles import make_checkpoint


def parse(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    export.add_arguments(parser)
    return parser.parse_args(
        ["checkpoint", "bundle", "--source", "en", "--target", "pt", "--license", "MIT", *words]
    )


def test_the_output_of_evaluate_becomes_scores_of_the_manifest(tmp_path) -> None:
    path = tmp_path / "scores.json"
    scores = [{"metric": "BLEU", "value": 43.2149, "signature": "nrefs:1"}]
    path.write_text(json.dumps({"test_set": "devtest", "num_sentences": 2, "scores": scores}))

    (score,) = export.load_scores(path)
    assert (score.test_set, score.metric, score.value) == ("devtest", "BLEU", 43.21)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"test_set": "x", "scores": [1]}'])
def test_scores_of_another_shape_are_refused(tmp_path, content) -> None:
    path = tmp_path / "scores.json"
    path.write_text(content)

    with pytest.raises(CommandError, match=r"evaluate --json") as info:
        export.load_scores(path)
    assert info.value.exit_code == 2


def test_what_the_user_sets_replaces_the_defaults() -> None:
    facts = export._read_facts(parse("--beam-size", "2", "--max-target-tokens", "99"))

    assert facts.name == "en-pt"
    assert facts.decoding.beam_size == 2
    assert facts.decoding.length_penalty == 1.0
    assert facts.limits.max_target_tokens == 99
    assert facts.limits.max_source_tokens == 256


def test_a_checkpoint_that_is_not_there_is_one_message(tmp_path) -> None:
    arguments = parse()
    arguments.checkpoint, arguments.output = tmp_path / "nothing", tmp_path / "bundle"

    with pytest.raises(CommandError, match="nothing"):
        export.run(arguments)
    assert not (tmp_path / "bundle").exists()


def test_a_model_card_that_is_not_there_is_a_usage_error(tmp_path) -> None:
    with pytest.raises(CommandError, match="there is no file") as info:
        export.run(parse("--file", str(tmp_path / "card.md")))
    assert info.value.exit_code == 2


@pytest.mark.parametrize("option", ["--calibration-text", "--shortlist-text"])
@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "holds files but no `manifest.json`"),
        (("--max-source-tokens", "1"), "`max_source_tokens` must be"),
    ],
)
def test_what_cannot_be_written_is_refused_before_any_text_is_read(
    tmp_path, option, words, message
) -> None:
    """Its lines may take an hour to translate."""
    make_checkpoint(tmp_path / "checkpoint")
    text = tmp_path / "text"
    text.write_bytes(b"\xff\n")  # who reads it, fails
    (tmp_path / "bundle").mkdir()
    (tmp_path / "bundle/notes.txt").write_text("mine")
    arguments = parse(option, str(text), *words)
    arguments.checkpoint, arguments.output = tmp_path / "checkpoint", tmp_path / "bundle"

    with pytest.raises(CommandError, match=message):
        export.run(arguments)
