"""The servers that stand under load side by side: the same gRPC front, the same weights, int8."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.server import DRAGOMAN_PROGRAM, Server, start_server

__all__ = ["BATCHER", "CTRANSLATE2", "DRAGOMAN", "Contender", "start_contenders", "start_dragoman"]

DRAGOMAN = "Dragoman"
BATCHER = "batcher on our engine"
CTRANSLATE2 = "batcher on CTranslate2"

_SETTINGS = {"DRAGOMAN_LOG__LEVEL": "INFO"}
"""As a server has it by default: a line for some of the calls."""
_BATCHER_SERVER = ("-m", "benchmarks.batcher_server")


@dataclass(frozen=True, slots=True)
class Contender:
    """One server."""

    name: str
    server: Server


@contextlib.contextmanager
def start_contenders(
    directory: Path, bundle: Path, ctranslate2_model: Path, batcher_options: Sequence[str] = ()
) -> Iterator[list[Contender]]:
    """Start one server of each kind; those that are not measured just now are idle.

    Args:
        directory: Where the lines go that they log.
        bundle: Served by Dragoman and by the batcher on our engine.
        ctranslate2_model: The same weights.
        batcher_options: Further options of both batchers.
    """
    batcher = (*_BATCHER_SERVER, *batcher_options)
    programs = {
        DRAGOMAN: DRAGOMAN_PROGRAM,
        BATCHER: batcher,
        CTRANSLATE2: (*batcher, "--ctranslate2-model", str(ctranslate2_model.resolve())),
    }
    with contextlib.ExitStack() as stack:
        contenders: list[Contender] = []
        for name, program in programs.items():
            log_file = directory / f"{re.sub('[^a-z0-9]+', '-', name.lower())}.log"
            server = start_server([bundle], program=program, log_file=log_file, settings=_SETTINGS)
            contenders.append(Contender(name, stack.enter_context(server)))
        yield contenders


@contextlib.contextmanager
def start_dragoman(directory: Path, bundle: Path, *, shortlist: bool) -> Iterator[Contender]:
    """Start Dragoman alone, with the vocabulary shortlist of a bundle or without.

    Args:
        directory: Where the lines go that it logs.
        bundle: What it serves.
        shortlist: Whether to use the bundle's shortlist, if there is one.
    """
    settings = {**_SETTINGS, "DRAGOMAN_ENGINE__SHORTLIST": str(shortlist).lower()}
    log_file = directory / "dragoman-alone.log"
    with start_server([bundle], log_file=log_file, settings=settings) as server:
        yield Contender(DRAGOMAN, server)
