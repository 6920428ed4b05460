import io

import pytest

from commands.errors import CommandError
from commands.lines import check_text, count_lines, read_lines, split_lines


def test_lines_are_cut_at_newlines_only_and_keep_every_other_character() -> None:
    lines = list(split_lines(io.BytesIO("a\r\nb\u2028c\x0bd\n\nend".encode()), "f"))

    assert [(line.text, line.ending) for line in lines] == [
        ("a\r", "\n"),
        ("b\u2028c\x0bd", "\n"),
        ("", "\n"),
        ("end", ""),
    ]


def test_bytes_that_are_not_utf8_are_named_with_their_place() -> None:
    lines = split_lines(io.BytesIO(b"good\nbad \xff here\n"), "notes.txt")

    assert next(lines).text == "good"
    with pytest.raises(
        CommandError, match=r"line 2 of notes\.txt .* byte 0xff at position 5"
    ) as info:
        next(lines)
    assert info.value.exit_code == 2


def test_an_encoded_surrogate_is_refused() -> None:
    with pytest.raises(CommandError, match="not valid UTF-8"):
        list(split_lines(io.BytesIO(b"\xed\xa0\x80\n"), "f"))


def test_a_lone_surrogate_in_an_argument_is_refused() -> None:
    with pytest.raises(CommandError, match="TEXT is not valid UTF-8: character 3") as info:
        check_text("ab\udcff", "TEXT")
    assert info.value.exit_code == 2


def test_files_are_read_one_after_the_other(tmp_path) -> None:
    first, second = tmp_path / "1", tmp_path / "2"
    first.write_bytes(b"a\nb")
    second.write_bytes(b"c\n")

    assert [line.text for line in read_lines([str(first), str(second)])] == ["a", "b", "c"]
    assert count_lines([str(first), str(second)]) == 3
    assert count_lines([str(first), "-"]) is None


def test_a_file_that_cannot_be_read_is_a_usage_error(tmp_path) -> None:
    with pytest.raises(CommandError, match="cannot read") as info:
        list(read_lines([str(tmp_path)]))
    assert info.value.exit_code == 2
