import lzma

import numpy as np
import pytest

from model.errors import DataError, ModelError
from model.overlap import TestText
from model.recipes.pairs import (
    PairFiles,
    PairLimits,
    PairStore,
    TokenStore,
    find_pair_files,
    load_pairs,
)
from tests.tiny_models import make_tokenizer

PAIRS = [
    ("a small cat", "um gato pequeno"),
    ("the rain", "a chuva"),
    ("the red mat and", "o tapete"),
]


def make_store(lengths):
    starts = np.concatenate(([0], np.cumsum(lengths)))
    ids = np.concatenate([np.full(length, row + 1) for row, length in enumerate(lengths)])
    store = TokenStore(ids.astype(np.uint16), starts)
    return PairStore(store, store)


@pytest.fixture
def inputs(tmp_path):
    make_tokenizer().save(tmp_path)
    file = tmp_path / "pairs.tsv.xz"
    file.write_bytes(lzma.compress("".join(f"{s}\t{t}\n" for s, t in PAIRS).encode()))
    return file, tmp_path / "tokenizer.spm", tmp_path / "tokens"


def test_pairs_come_back_with_their_end_of_sentence(inputs):
    file, tokenizer_path, cache = inputs
    store = load_pairs(
        [(file, False)], tokenizer_path, cache, PairLimits(max_pairs=10, max_tokens=50)
    )
    tokenizer = make_tokenizer()
    batch = store.batch(np.arange(3))
    for row, (source, target) in enumerate(PAIRS):
        source_ids = batch.source_ids[row][batch.source_mask[row]].tolist()
        target_ids = batch.target_ids[row][batch.target_mask[row]].tolist()
        assert tokenizer.decode_source(source_ids[:-1]) == source
        assert tokenizer.decode_target(target_ids[:-1]) == target
        assert source_ids[-1] == target_ids[-1] == tokenizer.eos_id


def test_tokenizing_that_was_killed_while_it_wrote_is_done_again(inputs, monkeypatch):
    file, tokenizer_path, cache = inputs
    limits = PairLimits(max_pairs=10, max_tokens=50)

    def killed(path, array):
        path.write_bytes(b"half")
        if path.name == "target_starts.npy":
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(np, "save", killed)
        with pytest.raises(KeyboardInterrupt):
            load_pairs([(file, False)], tokenizer_path, cache, limits)
    assert len(load_pairs([(file, False)], tokenizer_path, cache, limits)) == len(PAIRS)


def test_reversed_file_gives_its_second_column_as_source(inputs):
    file, tokenizer_path, cache = inputs
    forward = load_pairs(
        [(file, False)], tokenizer_path, cache / "a", PairLimits(max_pairs=10, max_tokens=50)
    )
    backward = load_pairs(
        [(file, True)], tokenizer_path, cache / "b", PairLimits(max_pairs=10, max_tokens=50)
    )
    assert forward.source.ids.tolist() == backward.target.ids.tolist()
    assert forward.target.ids.tolist() == backward.source.ids.tolist()
    assert forward.source.ids.tolist() != forward.target.ids.tolist()


def test_both_kinds_of_files_give_their_share(inputs):
    file, tokenizer_path, cache = inputs
    files = [(file, False), (file, True)]
    store = load_pairs(files, tokenizer_path, cache, PairLimits(max_pairs=2, max_tokens=50))
    assert len(store) == 2
    batch = store.batch(np.arange(2))
    first_source = batch.source_ids[0][batch.source_mask[0]].tolist()
    second_target = batch.target_ids[1][batch.target_mask[1]].tolist()
    assert first_source == second_target


def test_files_are_found_by_kind_and_name(tmp_path):
    for name in ("b.1", "b.0", "a.0"):
        (tmp_path / name).touch()
    found = find_pair_files(tmp_path, [PairFiles("b.*"), PairFiles("a.*", reverse=True)])
    assert [(path.name, reverse) for path, reverse in found] == [
        ("b.0", False),
        ("b.1", False),
        ("a.0", True),
    ]


def test_second_run_reads_the_arrays_of_the_first(inputs, monkeypatch):
    file, tokenizer_path, cache = inputs
    load_pairs([(file, False)], tokenizer_path, cache, PairLimits(max_pairs=10, max_tokens=50))
    monkeypatch.setattr("model.recipes.pairs._tokenize", None)
    limits = PairLimits(max_pairs=10, max_tokens=50)
    assert len(load_pairs([(file, False)], tokenizer_path, cache, limits)) == 3


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda file, limits: file.write_bytes(lzma.compress(b"one\tum\n")), "other data"),
        (lambda file, limits: limits.update(max_pairs=2), "other max_pairs"),
        (lambda file, limits: limits.update(test_text=TestText(["A chuva!"])), "other test_text"),
    ],
)
def test_arrays_of_other_text_or_test_sets_are_not_taken_up(inputs, change, what):
    file, tokenizer_path, cache = inputs
    limits = {"max_pairs": 10, "max_tokens": 50}
    load_pairs([(file, False)], tokenizer_path, cache, PairLimits(**limits))
    before = {path.name: path.read_bytes() for path in cache.iterdir()}
    change(file, limits)
    with pytest.raises(DataError, match=what):
        load_pairs([(file, False)], tokenizer_path, cache, PairLimits(**limits))
    assert {path.name: path.read_bytes() for path in cache.iterdir()} == before


def test_arrays_whose_origin_is_unknown_are_made_again(inputs):
    file, tokenizer_path, cache = inputs
    limits = PairLimits(max_pairs=10, max_tokens=50)
    load_pairs([(file, False)], tokenizer_path, cache, limits)
    (cache / "origin.json").unlink()
    file.write_bytes(lzma.compress(b"a small cat\tum gato\n"))
    assert len(load_pairs([(file, False)], tokenizer_path, cache, limits)) == 1


@pytest.mark.parametrize("name", ["source_ids.npy", "target_starts.npy", "origin.json"])
@pytest.mark.parametrize("content", [b"", b"half"])
def test_broken_arrays_are_named(inputs, name, content):
    file, tokenizer_path, cache = inputs
    limits = PairLimits(max_pairs=10, max_tokens=50)
    load_pairs([(file, False)], tokenizer_path, cache, limits)
    (cache / name).write_bytes(content)
    with pytest.raises(ModelError, match="tokens"):
        load_pairs([(file, False)], tokenizer_path, cache, limits)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (lzma.compress(b"one\tum\n" * 9)[:-20], "cannot be read"),
        (lzma.compress(b"one\tum\n\xff\tdois\n"), "2: is not UTF-8"),
        (lzma.compress(b""), "no pair"),
        (b"", "no pair|cannot be read"),
        (b"plain text", "cannot be read"),
    ],
)
def test_broken_files_are_refused(inputs, content, message):
    file, tokenizer_path, cache = inputs
    file.write_bytes(content)
    with pytest.raises(DataError, match=message):
        load_pairs([(file, False)], tokenizer_path, cache, PairLimits(max_pairs=10, max_tokens=50))
    assert not cache.exists()


def test_long_pairs_and_pairs_past_the_limit_are_left_out(inputs):
    file, tokenizer_path, cache = inputs
    assert (
        len(
            load_pairs(
                [(file, False)], tokenizer_path, cache, PairLimits(max_pairs=2, max_tokens=50)
            )
        )
        == 2
    )
    longest = max(len(make_tokenizer().encode_source(source)) for source, _ in PAIRS)
    store = load_pairs(
        [(file, False)],
        tokenizer_path,
        cache / "b",
        PairLimits(max_pairs=10, max_tokens=longest - 1),
    )
    assert len(store) < 3


def test_pairs_that_are_test_text_on_either_side_are_left_out_and_others_taken_instead(inputs):
    file, tokenizer_path, cache = inputs
    limits = PairLimits(max_pairs=2, max_tokens=50, test_text=TestText(["A chuva!", "o tapete."]))
    store = load_pairs([(file, False)], tokenizer_path, cache, limits)
    assert len(store) == 1
    first = store.source.ids[: store.source.starts[1] - 1].tolist()
    assert make_tokenizer().decode_source(first) == PAIRS[0][0]


def test_line_without_a_tab_is_refused_with_file_and_line(inputs):
    file, tokenizer_path, cache = inputs
    file.write_bytes(lzma.compress(b"one\tum\ntwo\n"))
    with pytest.raises(DataError, match=r"pairs\.tsv\.xz:2: needs two columns"):
        load_pairs([(file, False)], tokenizer_path, cache, PairLimits(max_pairs=10, max_tokens=50))


def test_batches_hold_every_pair_once_and_stay_in_their_budget():
    lengths = np.random.default_rng(0).integers(1, 30, size=200)
    store = make_store(lengths)
    batches = store.batches(np.arange(200), max_tokens=100, seed=1)
    assert sorted(np.concatenate(batches).tolist()) == list(range(200))
    assert all(lengths[rows].max() * len(rows) <= 100 for rows in batches)
    padded = sum(int(lengths[rows].max()) * len(rows) for rows in batches)
    assert padded < 1.1 * lengths.sum()


def test_order_of_batches_depends_on_the_seed_alone():
    store = make_store(np.random.default_rng(0).integers(1, 30, size=50))
    first, same, other = (store.batches(np.arange(50), 60, seed) for seed in (1, 1, 2))
    assert [rows.tolist() for rows in first] == [rows.tolist() for rows in same]
    assert [rows.tolist() for rows in first] != [rows.tolist() for rows in other]


def test_pair_longer_than_the_budget_has_a_batch_of_its_own():
    batches = make_store(np.array([3, 50, 4])).batches(np.arange(3), max_tokens=10, seed=0)
    assert sorted(rows.tolist() for rows in batches) == [[0, 2], [1]]
