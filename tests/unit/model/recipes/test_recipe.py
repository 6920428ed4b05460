import pytest

from model.recipes.en_pt.__main__ import CONFIG
from model.recipes.recipe import RecipeConfig, run_recipe


def test_missing_data_is_named_before_anything_is_read(tmp_path):
    config = RecipeConfig(
        teacher=tmp_path / "teacher", data=tmp_path, data_pattern="x.*.tsv.xz", run=tmp_path / "run"
    )
    with pytest.raises(FileNotFoundError, match=r"holds no x\.\*\.tsv\.xz.*--data"):
        run_recipe(config)


def test_missing_teacher_points_to_the_readme(tmp_path):
    (tmp_path / "x.0.tsv.xz").touch()
    config = RecipeConfig(
        teacher=tmp_path / "teacher", data=tmp_path, data_pattern="x.*.tsv.xz", run=tmp_path / "run"
    )
    with pytest.raises(FileNotFoundError, match="README"):
        run_recipe(config)


def test_defaults_of_en_pt_are_relative_paths():
    for path in (CONFIG.teacher, CONFIG.data, CONFIG.run):
        assert not path.is_absolute()
        assert ".." not in path.parts
