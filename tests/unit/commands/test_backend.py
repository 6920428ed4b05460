import pytest

from commands.backend import Options, Pair, choose_pair
from commands.errors import CommandError

EN_PT = Pair("en-pt", "en", "pt")
PT_EN = Pair("pt-en", "pt", "en")


def test_the_only_model_gives_the_languages() -> None:
    options = choose_pair([EN_PT], Options(beam_size=2))

    assert (options.source_language, options.target_language) == ("en", "pt")
    assert options.beam_size == 2


def test_one_language_is_enough_where_it_decides() -> None:
    options = choose_pair([EN_PT, PT_EN], Options(target_language="en"))

    assert (options.source_language, options.target_language) == ("pt", "en")


def test_a_regional_variety_fits_its_language_and_is_passed_on() -> None:
    options = choose_pair([EN_PT, PT_EN], Options(target_language="pt-BR"))

    assert (options.source_language, options.target_language) == ("en", "pt-BR")


def test_the_name_of_a_model_is_enough() -> None:
    assert choose_pair([EN_PT, PT_EN], Options(model="pt-en")).source_language == "pt"


def test_several_fitting_models_are_listed() -> None:
    with pytest.raises(
        CommandError, match=r"several models fit.*en to pt \(en-pt\), pt to en"
    ) as info:
        choose_pair([EN_PT, PT_EN], Options())
    assert info.value.exit_code == 2


def test_a_language_that_nobody_knows_is_said_to_be_so() -> None:
    with pytest.raises(CommandError, match="no loaded model fits, source 'de'"):
        choose_pair([EN_PT], Options(source_language="de"))
