"""Texts for measurements that do not depend on what the texts say."""

from __future__ import annotations

import argparse
from pathlib import Path

__all__ = ["USUAL_TOKENS", "find_texts_fault", "load_texts", "texts_file"]

USUAL_TOKENS = range(15, 36)
"""Source tokens of a sentence of usual length."""

_TEXTS = (
    "Good morning.",
    "Thank you very much.",
    "The committee decided on Tuesday that the budget would not be approved.",
    "She opened the window and looked at the rain.",
    "Where is the nearest railway station?",
    "The museum is closed on Mondays, but the garden stays open all week.",
    "Scientists say that the glacier has lost a third of its ice in the last forty years, and that it will be gone "
    "before the end of the century unless the warming slows down.",
    "Please restart the computer before you install the update.",
    "He had never seen the sea before, and he did not know what to say.",
    "The patient was given two tablets after breakfast and one before going to bed.",
    "No.",
    "If the train is late again tomorrow, we shall take the bus, which costs less and stops in front of the school.",
    "The new law, which was passed by a narrow majority after a debate of eleven hours, obliges every company with "
    "more than fifty employees to publish how much it pays to women and to men.",
    "I do not think that this is a good idea.",
    "Add the flour slowly, stir until the dough is smooth, and let it rest for an hour under a damp cloth.",
    "Our neighbours bought an old mill by the river and turned it into a small hotel.",
)


def load_texts(path: Path | None = None) -> list[str]:
    """Read the lines of a file that are not blank; without a file, a few sentences of mixed length."""
    if path is None:
        return list(_TEXTS)
    return [line for line in path.read_text("utf-8").split("\n") if line.strip()]


def find_texts_fault(path: Path) -> str | None:
    """Tell why a file gives no texts, in a sentence; None when it gives some."""
    try:
        texts = load_texts(path)
    except OSError as error:
        return f"cannot read {path}: {error.strerror or error}."
    except UnicodeDecodeError:
        return f"{path} is not valid UTF-8."
    return None if texts else f"{path} holds no text."


def texts_file(value: str) -> Path:
    """Take the name of a file with texts from a command line."""
    fault = find_texts_fault(Path(value))
    if fault is not None:
        raise argparse.ArgumentTypeError(fault)
    return Path(value)
