from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from model.errors import TokenizerError
from model.tokenizer import JOINT_FILE, SOURCE_FILE, TARGET_FILE, Tokenizer, train_tokenizer
from tests.tiny_models import SENTENCES, make_tokenizer


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_text_of_the_training_data_survives_ids(kind: str) -> None:
    tokenizer = make_tokenizer(kind=kind)
    for text in SENTENCES:
        assert tokenizer.decode_source(tokenizer.encode_source(text)) == text
        assert tokenizer.decode_target(tokenizer.encode_target(text)) == text


def test_every_source_and_target_ends_in_eos_once() -> None:
    tokenizer = make_tokenizer()
    for ids in (tokenizer.encode_source("a cat"), tokenizer.encode_target("a cat")):
        assert ids.index(tokenizer.eos_id) == len(ids) - 1
    assert tokenizer.encode_source("") == [tokenizer.eos_id]


def test_batch_gives_what_single_calls_give() -> None:
    tokenizer = make_tokenizer()
    one_by_one = [tokenizer.encode_source(text) for text in SENTENCES]
    assert tokenizer.encode_source_batch(SENTENCES) == one_by_one
    assert tokenizer.encode_source_batch([]) == []


def test_special_ids_are_left_out_of_text() -> None:
    tokenizer = make_tokenizer()
    ids = tokenizer.encode_target("a cat")
    padded = [tokenizer.bos_id or 0, *ids, tokenizer.pad_id, tokenizer.pad_id]
    assert tokenizer.decode_target(padded) == "a cat"
    assert tokenizer.decode_target([tokenizer.eos_id]) == ""


def test_special_ids_of_a_trained_vocabulary_are_the_defaults_of_the_model() -> None:
    tokenizer = make_tokenizer()
    ids = (tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id, tokenizer.unk_id)
    assert ids == (0, 1, 2, 3)


def test_words_that_look_like_special_pieces_are_plain_text() -> None:
    tokenizer = make_tokenizer()
    ids = tokenizer.encode_source("</s> <unk> <pad>")
    assert ids.count(tokenizer.eos_id) == 1
    assert tokenizer.decode_source(ids) == "</s> <unk> <pad>"


def test_unseen_characters_are_spelled_in_bytes() -> None:
    tokenizer = make_tokenizer()
    ids = tokenizer.encode_source("日本 🙂")
    assert tokenizer.unk_id not in ids
    assert tokenizer.decode_source(ids) == "日本 🙂"


def test_without_byte_fallback_unseen_characters_are_unknown() -> None:
    tokenizer = make_tokenizer(byte_fallback=False, vocab_size=60)
    assert tokenizer.unk_id in tokenizer.encode_source("日")


def test_split_digits_gives_each_digit_its_own_piece() -> None:
    tokenizer = make_tokenizer(split_digits=True)
    pieces = tokenizer.target_pieces(tokenizer.encode_target("4567"))
    assert [piece for piece in pieces if piece.isdigit()] == ["4", "5", "6", "7"]


def test_the_same_text_trains_the_same_vocabulary() -> None:
    assert train_tokenizer(SENTENCES, vocab_size=300) == train_tokenizer(SENTENCES, vocab_size=300)


def test_saved_joint_vocabulary_is_one_file_with_the_same_bytes(tmp_path: Path) -> None:
    content = train_tokenizer(SENTENCES, vocab_size=300)
    assert Tokenizer(content).save(tmp_path) == (tmp_path / JOINT_FILE,)
    assert (tmp_path / JOINT_FILE).read_bytes() == content
    assert Tokenizer.load_directory(tmp_path).is_joint


def test_separate_vocabularies_have_their_own_ids(tmp_path: Path) -> None:
    source = train_tokenizer(SENTENCES[:2], vocab_size=290)
    target = train_tokenizer(SENTENCES[2:], vocab_size=300)
    files = Tokenizer(source, target).save(tmp_path)
    assert files == (tmp_path / SOURCE_FILE, tmp_path / TARGET_FILE)
    tokenizer = Tokenizer.load_directory(tmp_path)
    assert not tokenizer.is_joint
    assert (tokenizer.source_vocab_size, tokenizer.target_vocab_size) == (290, 300)
    assert tokenizer.vocab_size == 300
    assert tokenizer.decode_target(tokenizer.encode_target("comité")) == "comité"
    assert tokenizer.encode_source("the budget") != tokenizer.encode_target("the budget")


@pytest.mark.parametrize("content", [b"", b"not a model at all", "cut"])
def test_broken_file_is_refused_by_name(tmp_path: Path, content: bytes | str) -> None:
    whole = train_tokenizer(SENTENCES, vocab_size=300)
    path = tmp_path / "broken.spm"
    path.write_bytes(whole[: len(whole) // 2] if isinstance(content, str) else content)
    with pytest.raises(TokenizerError, match=r"broken\.spm: is not a SentencePiece model"):
        Tokenizer.load(path)


def test_missing_file_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match=r"gone\.spm: .*No such file"):
        Tokenizer.load(tmp_path / "gone.spm")
    with pytest.raises(TokenizerError, match="holds neither"):
        Tokenizer.load_directory(tmp_path)


def test_ids_outside_the_vocabulary_are_refused() -> None:
    tokenizer = make_tokenizer()
    with pytest.raises(TokenizerError, match=r"in \[0, 319\], but one is 320"):
        tokenizer.decode_target([5, 320])


def test_lone_surrogate_is_refused() -> None:
    with pytest.raises(TokenizerError, match="lone surrogate"):
        make_tokenizer().encode_source("a\ud800b")


def test_training_on_too_little_text_says_how_many_pieces_fit() -> None:
    with pytest.raises(TokenizerError, match="value <= "):
        train_tokenizer(SENTENCES, vocab_size=30_000)
    with pytest.raises(TokenizerError, match="no sentences"):
        train_tokenizer([], vocab_size=300)


def test_training_on_fewer_pieces_than_special_ones_says_so() -> None:
    with pytest.raises(TokenizerError, match="1 pieces: the special ones do not fit"):
        train_tokenizer(SENTENCES, vocab_size=1)


def test_what_reading_the_sentences_raises_comes_through_as_it_is() -> None:
    fault = OSError("a.en:16: has no counterpart")

    def broken() -> Iterator[str]:
        yield from SENTENCES
        raise fault

    with pytest.raises(OSError) as caught:
        train_tokenizer(broken(), vocab_size=300)
    assert caught.value is fault


def test_module_imports_no_torch() -> None:
    code = "import model.tokenizer, sys; print('torch' in sys.modules, 'numpy' in sys.modules)"
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert answer.stdout.split()[0] == "False"
