import pytest

from model.overlap import TestText

LINES = (
    "Good morning!",
    "The cat sat on the mat.",
    "one two three four five six seven eight nine ten eleven twelve",
)


@pytest.mark.parametrize(
    "line",
    [
        "good   morning",
        "GOODMORNING.",
        "\ufb01ne! the cat sat on the mat... again",
        "Well? The cat sat on the mat!",
        "and two three four five six seven eight nine ten or so",
    ],
)
def test_same_words_in_another_dress_are_found(line):
    assert TestText(LINES).meets(line)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "...",
        "Good morning. And good night!",  # two words are everybody's
        "the cat sat on the mat of the dog",
        "and two three four five six seven eight nine or so",  # eight in a row
        "the mat on the cat sat",
    ],
)
def test_other_lines_are_not(line):
    assert not TestText((*LINES, "?!")).meets(line)


def test_accents_count_but_not_how_they_are_encoded():
    text = TestText(["É amanhã que chegam os barcos"])
    assert text.meets("E\u0301 amanha\u0303 que chegam os barcos.")
    assert not text.meets("E amanha que chegam os barcos.")
