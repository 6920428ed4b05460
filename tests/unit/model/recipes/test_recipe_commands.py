"""Whatever a user gets wrong ends in one line, not in a traceback."""

import lzma
from types import SimpleNamespace

import pytest

from model.errors import DataError
from model.recipes.en_pt.__main__ import CONFIG
from model.recipes.from_scratch import __main__ as from_scratch
from model.recipes.recipe import run_command
from tests.tiny_models import make_tokenizer

PAIRS = b"a small cat\tum gato pequeno\nthe rain\ta chuva\n"


@pytest.fixture
def options(tmp_path):
    data, teacher = tmp_path / "data", tmp_path / "teacher"
    data.mkdir()
    teacher.mkdir()
    (data / "distill.en-pt.0.tsv.xz").write_bytes(lzma.compress(PAIRS))
    make_tokenizer().save(teacher)
    (teacher / "tokenizer.spm").rename(teacher / "vocab.enpt.spm")
    (teacher / "model.enpt.bin").write_bytes(b"garbage")
    return {"--data": data, "--teacher": teacher, "--run": tmp_path / "run"}


def message_of(options, *more):
    with pytest.raises(SystemExit) as ended:
        run_command(CONFIG, [str(word) for pair in options.items() for word in pair] + [*more])
    message = str(ended.value.code)
    assert "\n" not in message
    return message


def test_missing_data_and_a_missing_or_broken_teacher_are_named(options, tmp_path):
    assert "model.enpt.bin is not a readable Marian model" in message_of(options)
    assert "holds no distill.en-pt" in message_of({**options, "--data": tmp_path})
    assert "exactly one vocab.*.spm" in message_of({**options, "--teacher": tmp_path})


def test_a_vocabulary_that_is_broken_or_of_another_model_is_named(options, monkeypatch):
    small = SimpleNamespace(config=SimpleNamespace(target_vocab_size=7))
    monkeypatch.setattr("model.recipes.recipe.load_teacher", lambda folder: small)
    assert "they do not belong together" in message_of(options)
    (options["--teacher"] / "vocab.enpt.spm").write_bytes(b"garbage")
    assert "vocab.enpt.spm" in message_of(options)


def test_a_device_that_is_not_there_is_named(options):
    assert "`device` must be auto, cpu or cuda" in message_of(options, "--device", "tpu")


def test_a_run_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(SystemExit, match="file: File exists"):
        from_scratch.main(["--data", str(tmp_path), "--run", str(tmp_path / "file")])


@pytest.mark.parametrize(
    ("option", "value", "rule"),
    [
        ("--threads", "-1", "whole number of at least 0"),
        ("--threads", "two", "whole number of at least 0"),
        ("--time-scale", "0", "number above 0"),
        ("--time-scale", "-1", "number above 0"),
        ("--time-scale", "nan", "number above 0"),
        ("--time-scale", "inf", "number above 0"),
    ],
)
def test_options_out_of_range_are_wrong_usage(option, value, rule, capsys):
    with pytest.raises(SystemExit) as ended:
        run_command(CONFIG, [f"{option}={value}"])
    assert ended.value.code == 2
    assert rule in capsys.readouterr().err


def test_export_of_no_checkpoint_ends_without_a_traceback(tmp_path, capfd):
    with pytest.raises(SystemExit, match="the export failed"):
        run_command(CONFIG, ["--export", str(tmp_path), str(tmp_path / "bundle")])
    assert "Traceback" not in capfd.readouterr().err


def test_from_scratch_names_missing_and_broken_text(tmp_path):
    arguments = ["--data", str(tmp_path), "--run", str(tmp_path / "run")]
    with pytest.raises(SystemExit, match=r"en-pt\.ptbr\.tsv\.xz: cannot be read"):
        from_scratch.main(arguments)
    (tmp_path / from_scratch.PARALLEL_FILE).write_bytes(lzma.compress(PAIRS)[:-20])
    with pytest.raises(SystemExit, match="cannot be read"):
        from_scratch.main(arguments)
    assert not (tmp_path / "run" / "held-out.tsv").exists()


def test_text_that_leaves_nothing_to_hold_out_is_no_split(tmp_path):
    (tmp_path / from_scratch.PARALLEL_FILE).write_bytes(lzma.compress(PAIRS))
    with pytest.raises(SystemExit, match="more text is needed") as ended:
        from_scratch.main(["--data", str(tmp_path), "--run", str(tmp_path / "run")])
    assert isinstance(ended.value.__cause__, DataError)
    assert not (tmp_path / "run" / "held-out.tsv").exists()


def test_a_run_keeps_its_configuration_and_tells_when_the_shipped_one_is_another(
    tmp_path, monkeypatch, capsys
):
    trained = []
    monkeypatch.setattr(from_scratch.train, "run", trained.append)
    monkeypatch.setattr(from_scratch, "write_bundle", lambda *arguments: None)
    (tmp_path / "held-out.tsv").touch()
    from_scratch.main(["--run", str(tmp_path)])
    assert capsys.readouterr().err == ""
    (tmp_path / "config.toml").write_text("seed = 3\n")
    from_scratch.main(["--run", str(tmp_path)])
    assert "differs from" in capsys.readouterr().err
    assert trained == [tmp_path / "config.toml"] * 2
    assert (tmp_path / "config.toml").read_text() == "seed = 3\n"


def test_other_errors_keep_their_traceback(monkeypatch):
    def fail(*arguments):
        raise AssertionError

    monkeypatch.setattr("model.recipes.recipe.run_recipe", fail)
    with pytest.raises(AssertionError):
        run_command(CONFIG, [])
