"""Text to token ids and back, by SentencePiece (Kudo and Richardson 2018).

Torch-free: the server imports this module. A joint vocabulary is one SentencePiece model for both sides; with separate
vocabularies there are two, and the ids of their special tokens must agree, because the decoder knows one EOS only.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal

from sentencepiece import SentencePieceProcessor, SentencePieceTrainer

from model.errors import TokenizerError

__all__ = [
    "JOINT_FILE",
    "SOURCE_FILE",
    "TARGET_FILE",
    "Tokenizer",
    "TokenizerError",
    "TokenizerKind",
    "train_tokenizer",
]

TokenizerKind = Literal["unigram", "bpe"]

JOINT_FILE = "tokenizer.spm"
SOURCE_FILE = "tokenizer.source.spm"
TARGET_FILE = "tokenizer.target.spm"


class Tokenizer:
    """The vocabulary of a model, both sides.

    SentencePiece normalizes what it reads (Unicode form, white space): the first trip through ids may change a text,
    every further trip changes neither the text nor the ids.
    """

    def __init__(self, source: bytes, target: bytes | None = None) -> None:
        """Take the contents of the source's SentencePiece model, and of the target's unless both share one."""
        self._source_model = source
        self._target_model = source if target is None else target
        self._source = _parse(source, "source vocabulary")
        self._target = self._source if target is None else _parse(target, "target vocabulary")
        for name in ("eos_id", "unk_id", "pad_id", "bos_id"):
            ids = (getattr(self._source, name)(), getattr(self._target, name)())
            if ids[0] != ids[1]:
                raise TokenizerError(
                    f"`{name}` must be the same in both vocabularies, but is {ids[0]} in the source's and "
                    f"{ids[1]} in the target's."
                )

    @classmethod
    def load(cls, source_model: Path, target_model: Path | None = None) -> Tokenizer:
        """Read SentencePiece files.

        Args:
            source_model: The source's model, or the joint one.
            target_model: The target's model; None when the vocabulary is joint.

        Raises:
            TokenizerError: A file is missing or is no SentencePiece model; the message names it.
        """
        source = _read(source_model)
        if target_model is None or target_model == source_model:
            return cls(source)
        return cls(source, _read(target_model))

    @classmethod
    def load_directory(cls, directory: Path) -> Tokenizer:
        """Read what `save` wrote: `tokenizer.spm`, or `tokenizer.source.spm` and `tokenizer.target.spm`."""
        if (directory / JOINT_FILE).exists():
            return cls.load(directory / JOINT_FILE)
        if (directory / SOURCE_FILE).exists():
            return cls.load(directory / SOURCE_FILE, directory / TARGET_FILE)
        raise TokenizerError(f"{directory}: holds neither {JOINT_FILE} nor {SOURCE_FILE}.")

    def save(self, directory: Path) -> tuple[Path, ...]:
        """Write the SentencePiece model(s) into a directory, byte for byte as they were read.

        Returns:
            The files that were written: one when the vocabulary is joint, else source and target.
        """
        if self.is_joint:
            contents = {JOINT_FILE: self._source_model}
        else:
            contents = {SOURCE_FILE: self._source_model, TARGET_FILE: self._target_model}
        for name, content in contents.items():
            (directory / name).write_bytes(content)
        return tuple(directory / name for name in contents)

    @property
    def is_joint(self) -> bool:
        """Both sides share one vocabulary."""
        return self._source_model == self._target_model

    @property
    def source_vocab_size(self) -> int:
        """Pieces in the source vocabulary."""
        return int(self._source.vocab_size())

    @property
    def target_vocab_size(self) -> int:
        """Pieces in the target vocabulary."""
        return int(self._target.vocab_size())

    @property
    def vocab_size(self) -> int:
        """Pieces in the target vocabulary: the width of the output projection."""
        return self.target_vocab_size

    @property
    def eos_id(self) -> int:
        """Ends every source and every target."""
        return int(self._target.eos_id())

    @property
    def unk_id(self) -> int:
        """Stands for what the vocabulary cannot spell."""
        return int(self._target.unk_id())

    @property
    def pad_id(self) -> int:
        """Fills batches: the vocabulary's own padding piece, or EOS where it has none (Marian's)."""
        pad_id = int(self._target.pad_id())
        return pad_id if pad_id >= 0 else self.eos_id

    @property
    def bos_id(self) -> int | None:
        """First input of the decoder; None where the vocabulary has no such piece (Marian's)."""
        bos_id = int(self._target.bos_id())
        return bos_id if bos_id >= 0 else None

    def encode_source(self, text: str) -> list[int]:
        """Give the ids of a source, EOS at the end."""
        return self.encode_source_batch([text])[0]

    def encode_source_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Give the ids of many sources, EOS at the end of each."""
        return _encode(self._source, texts)

    def encode_target(self, text: str) -> list[int]:
        """Give the ids of a target, EOS at the end."""
        return self.encode_target_batch([text])[0]

    def encode_target_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Give the ids of many targets, EOS at the end of each."""
        return _encode(self._target, texts)

    def decode_source(self, token_ids: Sequence[int]) -> str:
        """Give the text of source ids; EOS, BOS and padding are left out."""
        return self._decode(self._source, token_ids)

    def decode_target(self, token_ids: Sequence[int]) -> str:
        """Give the text of target ids; EOS, BOS and padding are left out."""
        return self._decode(self._target, token_ids)

    def source_pieces(self, token_ids: Sequence[int]) -> list[str]:
        """Give the piece of each source id; as `target_pieces`."""
        return [str(self._source.id_to_piece(int(token_id))) for token_id in token_ids]

    def target_pieces(self, token_ids: Sequence[int]) -> list[str]:
        """Give the piece of each target id as the vocabulary spells it, for pictures and messages."""
        return [str(self._target.id_to_piece(int(token_id))) for token_id in token_ids]

    @staticmethod
    def _decode(processor: SentencePieceProcessor, token_ids: Sequence[int]) -> str:
        words = [int(token_id) for token_id in token_ids]
        vocab_size = processor.vocab_size()
        for token_id in words:
            if not 0 <= token_id < vocab_size:
                raise TokenizerError(
                    f"Token ids must be in [0, {vocab_size - 1}], but one is {token_id}."
                )
        return str(processor.decode(words)) if words else ""  # control pieces spell nothing


def train_tokenizer(
    sentences: Iterable[str],
    *,
    vocab_size: int,
    kind: TokenizerKind = "unigram",
    normalization: str = "nmt_nfkc",
    byte_fallback: bool = True,
    split_digits: bool = False,
) -> bytes:
    """Learn a vocabulary from raw sentences; the special ids are those that `TransformerConfig` has as defaults.

    Args:
        sentences: Raw text, one sentence each; both languages for a joint vocabulary.
        vocab_size: Pieces to learn, special ones and (with `byte_fallback`) 256 bytes included.
        kind: "unigram" (Kudo 2018) or "bpe" (Sennrich et al. 2016).
        normalization: SentencePiece's rule, such as "nmt_nfkc" or "identity".
        byte_fallback: Spell characters that were never seen as bytes, so that nothing is unknown.
        split_digits: Make every digit a piece of its own.

    Returns:
        The SentencePiece model, to be written to a file or given to `Tokenizer`.

    Raises:
        TokenizerError: There is no text, or not enough for `vocab_size`.
        Exception: What reading the sentences raised.
    """
    model = io.BytesIO()
    source = _Watched(sentences)
    try:
        SentencePieceTrainer.train(
            sentence_iterator=iter(source),
            model_writer=model,
            vocab_size=vocab_size,
            model_type=kind,
            normalization_rule_name=normalization,
            byte_fallback=byte_fallback,
            split_digits=split_digits,
            character_coverage=0.9999,
            pad_id=0,
            bos_id=1,
            eos_id=2,
            unk_id=3,
            minloglevel=2,
        )
    except (RuntimeError, OSError) as error:
        if source.error is not None:
            raise source.error from None
        silence = "the special ones do not fit" if source.is_read else "there are no sentences"
        reason = _last_sentence(str(error)) or silence
        raise TokenizerError(
            f"Cannot train a {kind} vocabulary of {vocab_size} pieces: {reason}"
        ) from error
    return model.getvalue()


class _Watched:
    """Sentences, and what reading them raised: SentencePiece makes of that a text with a traceback in it."""

    def __init__(self, sentences: Iterable[str]) -> None:
        self._sentences = sentences
        self.is_read = False
        self.error: Exception | None = None

    def __iter__(self) -> Iterator[str]:
        try:
            for sentence in self._sentences:
                self.is_read = True
                yield sentence
        except Exception as error:
            self.error = error
            raise


def _read(path: Path) -> bytes:
    try:
        content = path.read_bytes()
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise TokenizerError(f"{path}: cannot read the SentencePiece model: {reason}.") from error
    try:
        _parse(content, str(path))
    except TokenizerError as error:
        raise TokenizerError(f"{error} The file may be truncated.") from error
    return content


def _parse(content: bytes, name: str) -> SentencePieceProcessor:
    fault = f"{name}: is not a SentencePiece model ({len(content)} bytes)."
    if not content:  # SentencePiece takes nothing at all for a model without pieces.
        raise TokenizerError(fault)
    try:
        processor = SentencePieceProcessor(model_proto=content)
    except (RuntimeError, OSError) as error:
        raise TokenizerError(fault) from error
    if processor.eos_id() < 0 or processor.unk_id() < 0:
        raise TokenizerError(
            f"{name}: the vocabulary needs an end-of-sentence and an unknown piece."
        )
    return processor


def _encode(processor: SentencePieceProcessor, texts: Sequence[str]) -> list[list[int]]:
    try:
        # One by one: given a list, SentencePiece starts threads, even when it is asked for one.
        encoded = [processor.encode(text, add_eos=True) for text in texts]
    except (RuntimeError, TypeError, UnicodeError) as error:
        raise TokenizerError("A text holds a lone surrogate and cannot be tokenized.") from error
    return [[int(token_id) for token_id in ids] for ids in encoded]


def _last_sentence(message: str) -> str:
    """Cut the C++ source line and condition that SentencePiece puts before its own words."""
    return message.rsplit("] ", maxsplit=1)[-1].strip()
