import dataclasses

import pytest

from model.recipes.en_pt.__main__ import CONFIG as EN_PT
from model.recipes.pairs import PairFiles
from model.recipes.pt_en.__main__ import CONFIG as PT_EN
from model.recipes.recipe import run_command, run_recipe


def make_recipe(folder):
    return dataclasses.replace(
        EN_PT,
        teacher=folder / "teacher",
        data=folder,
        pair_files=(PairFiles("x.*.tsv.xz"),),
        run=folder / "run",
    )


def test_missing_data_is_named_before_anything_is_read(tmp_path):
    config = make_recipe(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"holds no x\.\*\.tsv\.xz.*--data"):
        run_recipe(config)


def test_missing_teacher_points_to_the_readme(tmp_path):
    (tmp_path / "x.0.tsv.xz").touch()
    config = make_recipe(tmp_path)
    with pytest.raises(FileNotFoundError, match="README"):
        run_recipe(config)


@pytest.mark.parametrize("config", [EN_PT, PT_EN], ids=["en_pt", "pt_en"])
def test_defaults_are_relative_paths(config):
    for path in (config.teacher, config.data, config.run):
        assert not path.is_absolute()
        assert ".." not in path.parts


@pytest.mark.parametrize(("config", "name"), [(EN_PT, "en_pt"), (PT_EN, "pt_en")])
def test_help_names_the_command_as_it_is_typed_and_every_default(config, name, capsys):
    with pytest.raises(SystemExit):
        run_command(config, ["--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert f"usage: python -m model.recipes.{name} " in text
    for default in (config.teacher, config.data, config.run):
        assert f"(default: {default})" in text
