"""The command line: one line a subcommand, each imported only when it is used.

A subcommand is a module of `commands` with two functions: `add_arguments(parser)` and `run(arguments) -> exit code`.
Exit codes: 0 success, 1 failure, 2 wrong usage, configuration or bundle. An error is one message, never a traceback.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from commands.errors import EXIT_FAILURE, EXIT_USAGE, CommandError

__all__ = ["main"]

_COMMANDS = {
    "serve": "start the server",
    "translate": "translate a text, files or standard input",
    "train": "train a model from a configuration file",
    "distill": "translate a text into training data for another model",
    "evaluate": "measure BLEU and chrF of a server, a bundle or a checkpoint",
    "export": "turn a checkpoint into a bundle",
    "verify": "check a bundle, by itself or against its checkpoint",
    "bench": "measure this machine beside other engines (in a checkout)",
    "info": "describe a bundle",
    "health": "ask a server whether it is serving",
}
_MODULES_OF_EXTRAS = {
    "bench": {"ctranslate2", "psutil", "sacrebleu", "transformers"},
    "train": {"matplotlib", "onnx", "onnxscript", "safetensors", "torch"},
}
_EXIT_INTERRUPTED = 130
_EXIT_BROKEN_PIPE = 141


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand and return its exit code."""
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # see docs/decisions/006-no-telemetry.md
    os.environ.setdefault(
        "GRPC_VERBOSITY", "NONE"
    )  # its own lines between ours: what matters is raised
    _open_closed_streams()
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or words[0] not in _COMMANDS:
        _create_parser().parse_args(words or ["--help"])  # help, version, or what is wrong
    name, rest = words[0], words[1:]
    try:
        return _run(name, rest)
    except KeyboardInterrupt:
        return _EXIT_INTERRUPTED
    except BrokenPipeError:
        _silence_stdout()
        return _EXIT_BROKEN_PIPE
    except Exception as error:
        if os.environ.get("DRAGOMAN_TRACEBACK"):
            raise
        return _report(name, error)


class _Parser(argparse.ArgumentParser):
    """Tells wrong usage in one line, like every other error."""

    def error(self, message: str) -> NoReturn:
        raise CommandError(f"{message} (see {self.prog} --help)", exit_code=EXIT_USAGE)


def _run(name: str, words: Sequence[str]) -> int:
    module = importlib.import_module(f"commands.{name}")
    parser = _Parser(
        prog=f"dragoman {name}",
        description=module.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    module.add_arguments(parser)
    exit_code: int = module.run(parser.parse_args(words))
    sys.stdout.flush()
    return exit_code


def _report(name: str, error: Exception) -> int:
    message, exit_code = str(error), EXIT_FAILURE
    if isinstance(error, CommandError):
        exit_code = error.exit_code
    elif isinstance(error, ModuleNotFoundError):
        message, exit_code = _missing_module_message(error), EXIT_USAGE
    elif isinstance(
        error, UnicodeEncodeError
    ):  # bytes that could not be decoded are lone surrogates
        message, exit_code = f"{error.object[:60]!a} is not valid UTF-8.", EXIT_USAGE
    elif isinstance(error, OSError) and error.strerror:
        message = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    else:
        message = (
            f"internal error, {type(error).__name__}: {error} (DRAGOMAN_TRACEBACK=1 shows where)"
        )
    print(f"dragoman {name}: {message}", file=sys.stderr)
    return exit_code


def _create_parser() -> argparse.ArgumentParser:
    width = max(map(len, _COMMANDS))
    listing = "\n".join(f"  {name:<{width}}  {text}" for name, text in _COMMANDS.items())
    parser = argparse.ArgumentParser(
        prog="dragoman",
        usage="dragoman COMMAND [options]",
        description="A self-hosted translation service.",
        epilog=f"commands:\n{listing}\n\n`dragoman COMMAND --help` tells the options of a command.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"dragoman {_version()}")
    parser.add_argument("command", choices=tuple(_COMMANDS), metavar="COMMAND", help="see below")
    return parser


def _version() -> str:
    try:
        return importlib.metadata.version("dragoman")
    except importlib.metadata.PackageNotFoundError:
        return "(not installed)"


def _missing_module_message(error: ModuleNotFoundError) -> str:
    missing = (error.name or "").partition(".")[0]
    for extra, modules in _MODULES_OF_EXTRAS.items():
        if missing in modules:
            return (
                f"needs `{missing}`: use .venv-dev/bin/dragoman (`make install` makes it), "
                f"or pip install '.[{extra}]' in the checkout."
            )
    if missing == "onnxruntime":
        return "needs ONNX Runtime: pip install '.[cpu]' in the checkout, or '.[gpu]' (never both)."
    return f"needs the module `{missing}`, which is not installed."


def _open_closed_streams() -> None:
    """Give a standard stream that the caller closed the null device: else the next socket would take its number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115


def _silence_stdout() -> None:
    """Keep the interpreter from failing once more when it flushes standard output at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main())
