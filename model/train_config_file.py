"""Reading the TOML file of a training run: every fault is collected, a key with a typo gets its nearest neighbour."""

from __future__ import annotations

import dataclasses
import tomllib
from difflib import get_close_matches
from pathlib import Path
from types import UnionType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from model.config import PRESETS, TransformerConfig
from model.errors import TrainConfigError
from model.parallel_text import ParallelFile
from model.train_config import (
    DataSection,
    ModelSection,
    TokenizerSection,
    TrainConfig,
    TrainingSection,
)

_FROM_TOKENIZER = ("source_vocab_size", "target_vocab_size", "pad_id", "bos_id", "eos_id")

Section = TypeVar("Section")


def load_train_config(path: Path) -> TrainConfig:
    """Read and check a training configuration.

    Raises:
        TrainConfigError: The file is missing, is not TOML, or has faults; the message lists every one.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise TrainConfigError(f"{path}: cannot be read: {reason}.") from error
    reader = _Reader(path.parent)
    config = reader.read(path, content)
    if config is None or reader.faults:
        raise TrainConfigError(f"{path}: " + "; ".join(reader.faults))
    return config


class _Reader:
    """Turns tables into sections and collects what is wrong with them."""

    def __init__(self, base: Path) -> None:
        self.faults: list[str] = []
        self._base = base

    def read(self, path: Path, content: dict[str, Any]) -> TrainConfig | None:
        known = ["output", "seed", "model", "tokenizer", "data", "training"]
        self._check_keys(content, known, "")
        output = self._value(content, "output", Path, "")
        seed = self._value(content, "seed", int, "") if "seed" in content else 1
        tables = {name: self._table(content, name) for name in known[2:]}
        model = self._model(tables["model"])
        tokenizer = self._section(TokenizerSection, tables["tokenizer"], "[tokenizer] ")
        data = self._section(DataSection, tables["data"], "[data] ")
        training = self._section(TrainingSection, tables["training"], "[training] ")
        if tokenizer is None or data is None or training is None or self.faults:
            return None
        self._check_files(tokenizer, data, model)
        longest = max(data.max_source_tokens, data.max_target_tokens)
        if training.batch_tokens < longest:
            self.faults.append(
                f"[training] `batch_tokens` must be at least the longest sentence of [data], {longest}, "
                f"but is {training.batch_tokens}"
            )
        return TrainConfig(
            path=path,
            output=output,
            seed=seed,
            model=model,
            tokenizer=tokenizer,
            data=data,
            training=training,
        )

    def _model(self, table: dict[str, Any]) -> ModelSection:
        hints = get_type_hints(TransformerConfig)
        allowed = [name for name in hints if name not in _FROM_TOKENIZER]
        self._check_keys(table, ["preset", "start_from", *allowed], "[model] ")
        fields = {
            name: self._value(table, name, hints[name], "[model] ")
            for name in allowed
            if name in table
        }
        if "start_from" in table:
            extra = sorted(({"preset"} | set(allowed)) & set(table) - {"dropout"})
            if extra:
                self.faults.append(
                    f"[model] `{extra[0]}` comes from the checkpoint that `start_from` names"
                )
            start = self._value(table, "start_from", Path, "[model] ")
            return ModelSection(fields=fields, start_from=start)
        if "preset" in table:
            preset = self._value(table, "preset", Literal[*PRESETS], "[model] ")
            fields = {**PRESETS.get(preset, {}), **fields}
        try:
            TransformerConfig.from_dict({**fields, "source_vocab_size": 8, "target_vocab_size": 8})
        except (ValueError, TypeError) as error:
            self.faults.append(f"[model] {str(error).rstrip('.')}")
        return ModelSection(fields=fields)

    def _section(self, section: type[Section], table: dict[str, Any], where: str) -> Section | None:
        hints = get_type_hints(section)
        self._check_keys(table, list(hints), where)
        num_faults = len(self.faults)
        values = {
            name: self._value(table, name, hint, where)
            for name, hint in hints.items()
            if name in table
        }
        for entry in dataclasses.fields(section):  # type: ignore[arg-type]
            if entry.name not in table and entry.default is dataclasses.MISSING:
                self.faults.append(f"{where}`{entry.name}` is missing")
        if len(self.faults) > num_faults:
            return None
        try:
            return section(**values)
        except ValueError as error:
            self.faults += [f"{where}{fault}" for fault in str(error).split("; ")]
            return None

    def _table(self, content: dict[str, Any], name: str) -> dict[str, Any]:
        table = content.get(name, {})
        if isinstance(table, dict):
            return table
        self.faults.append(f"`{name}` must be a table, [{name}]")
        return {}

    def _check_keys(self, table: dict[str, Any], known: list[str], where: str) -> None:
        for key in table:
            if key not in known:
                nearest = get_close_matches(key, known, n=1)
                hint = f", did you mean `{nearest[0]}`?" if nearest else ""
                self.faults.append(f"{where}`{key}` is not a key{hint}")

    def _value(self, table: dict[str, Any], name: str, hint: Any, where: str) -> Any:
        if name not in table:
            self.faults.append(f"{where}`{name}` is missing")
            return None
        try:
            return self._convert(table[name], hint)
        except ValueError as error:
            self.faults.append(f"{where}`{name}` must be {error}, but is {table[name]!r}")
            return None

    def _convert(self, value: Any, hint: Any) -> Any:
        if get_origin(hint) is UnionType:  # X | None: TOML has no null, so a value is an X
            return self._convert(value, get_args(hint)[0])
        if get_origin(hint) is Literal:
            _expect(value in get_args(hint), f"one of {', '.join(map(repr, get_args(hint)))}")
        elif hint is bool:
            _expect(isinstance(value, bool), "true or false")
        elif hint is int:
            _expect(isinstance(value, int) and not isinstance(value, bool), "a whole number")
        elif hint is float:
            _expect(isinstance(value, int | float) and not isinstance(value, bool), "a number")
            return float(value)
        elif hint in (str, Path):
            _expect(isinstance(value, str) and value != "", "a string")
            return self._base / Path(value).expanduser() if hint is Path else value
        else:
            _expect(isinstance(value, list), "a list of files")
            return tuple(self._parallel_file(entry) for entry in value)
        return value

    def _parallel_file(self, entry: Any) -> ParallelFile:
        names = [entry] if isinstance(entry, str) else entry
        is_pair = isinstance(names, list) and len(names) in (1, 2)
        _expect(
            is_pair and all(isinstance(name, str) for name in names),
            'a list of "file.tsv" or ["source.txt", "target.txt"]',
        )
        return ParallelFile(*(self._base / Path(name).expanduser() for name in names))

    def _check_files(
        self, tokenizer: TokenizerSection, data: DataSection, model: ModelSection
    ) -> None:
        for name, files in (("train", data.train), ("valid", data.valid)):
            for path in (path for file in files for path in file.paths):
                if not path.is_file():
                    self.faults.append(f"[data] `{name}`: there is no file {path}")
        for name, file in (("path", tokenizer.path), ("target_path", tokenizer.target_path)):
            if file is not None and not file.is_file():
                self.faults.append(f"[tokenizer] `{name}`: there is no file {file}")
        if model.start_from is not None and not model.start_from.is_dir():
            self.faults.append(f"[model] `start_from`: there is no directory {model.start_from}")


def _expect(condition: bool, rule: str) -> None:
    if not condition:
        raise ValueError(rule)
