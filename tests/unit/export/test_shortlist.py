"""The file of a shortlist, and the list of a sentence."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from export.bundle import BundleError
from export.shortlist import Shortlist, load_shortlist, save_shortlist, shortlist_faults


def make(**fields: Any) -> Shortlist:
    known: dict[str, Any] = {
        "frequent": np.array([0, 5], np.uint16),
        "offsets": np.array([0, 0, 3, 3, 5], np.uint32),
        "targets": np.array([9, 5, 7, 5, 9], np.uint16),
    }
    return Shortlist(**{**known, **fields})


def test_a_list_is_the_frequent_words_and_those_of_all_source_words_each_once_ascending() -> None:
    shortlist = make()
    assert shortlist.source_vocab_size == 4
    assert shortlist.words_for((3, 0)).tolist() == [0, 5, 9]
    assert shortlist.words_for((1, 3, 1, 0)).tolist() == [0, 5, 7, 9]
    assert shortlist.words_for((0,)).tolist() == [0, 5]


def test_a_shortlist_is_read_as_it_was_written_and_written_the_same_each_time(
    tmp_path: Path,
) -> None:
    first, second = tmp_path / "a.npz", tmp_path / "b.npz"
    save_shortlist(first, make())
    save_shortlist(second, load_shortlist(first))
    assert first.read_bytes() == second.read_bytes()
    found = load_shortlist(second)
    for field in dataclasses.fields(Shortlist):
        array, expected = getattr(found, field.name), getattr(make(), field.name)
        assert array.dtype == expected.dtype
        np.testing.assert_array_equal(array, expected)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"frequent": np.empty(0, np.uint16)}, "`frequent` must not be empty"),
        ({"offsets": np.array([0, 0, 3, 3, 6], np.uint32)}, "must lead from 0 to the 5 words"),
        ({"offsets": np.array([1, 2, 3, 3, 5], np.uint32)}, "must lead from 0"),
        ({"offsets": np.empty(0, np.uint32)}, "must lead from 0"),
        ({"offsets": np.array([0, 3, 2, 3, 5], np.uint32)}, "must not fall"),
        ({"targets": np.array([9, 5, 7, 5, -9], np.int32)}, "unsigned numbers in one row"),
        ({"frequent": np.array([[0, 5]], np.uint16)}, "unsigned numbers in one row"),
    ],
)
def test_arrays_that_do_not_fit_together_are_refused(
    tmp_path: Path, change: dict[str, Any], fault: str
) -> None:
    save_shortlist(tmp_path / "a.npz", make(**change))
    with pytest.raises(BundleError, match=fault):
        load_shortlist(tmp_path / "a.npz")


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"\x80\x04N.", b"no archive at all"])
def test_other_files_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.npz"
    path.write_bytes(content)
    with pytest.raises(BundleError, match="it is no shortlist"):
        load_shortlist(path)


def test_an_array_alone_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "a.npz").open("wb") as stream:
        np.save(stream, np.arange(5))
    with pytest.raises(BundleError, match="it is no shortlist"):
        load_shortlist(tmp_path / "a.npz")


def test_a_pickle_is_never_opened(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[Any, ...]:
            return (pytest.fail, ("a pickle was opened",))

    path = tmp_path / "a.npz"
    objects = np.array([Trap()], dtype=object)
    np.savez(path, frequent=objects, offsets=objects, targets=objects)
    with pytest.raises(BundleError, match="it is no shortlist"):
        load_shortlist(path)


def test_a_file_with_an_array_missing_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", frequent=np.array([0], np.uint16))
    with pytest.raises(BundleError, match="it is no shortlist"):
        load_shortlist(tmp_path / "a.npz")


def test_the_lists_of_another_vocabulary_are_told_with_every_fault() -> None:
    fits = {"source_vocab_size": 4, "target_vocab_size": 10, "eos_id": 0}
    assert list(shortlist_faults(make(), **fits)) == []
    faults = list(shortlist_faults(make(), source_vocab_size=5, target_vocab_size=9, eos_id=2))
    assert faults == [
        "the shortlist has 4 source words, but the tokenizer 5",
        "the shortlist holds the word 9, but the vocabulary has 9",
        "the end of the sentence is not among the frequent words of the shortlist",
    ]
