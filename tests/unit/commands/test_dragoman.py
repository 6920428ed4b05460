import argparse
import subprocess
import sys
import types

import pytest

import dragoman
from commands.errors import CommandError


@pytest.fixture
def command(monkeypatch):
    """Put a subcommand `info` that does what the test wants."""

    def install(run):
        module = types.ModuleType("commands.info", "Test command.")
        module.add_arguments = lambda parser: parser.add_argument("--flag")
        module.run = run
        monkeypatch.setitem(sys.modules, "commands.info", module)

    return install


def raiser(error):
    def run(_: argparse.Namespace) -> int:
        raise error

    return run


def test_the_exit_code_of_the_command_is_that_of_the_program(command) -> None:
    command(lambda arguments: int(arguments.flag))

    assert dragoman.main(["info", "--flag", "3"]) == 3


def test_an_error_is_one_line_and_gives_its_exit_code(command, capsys) -> None:
    command(raiser(CommandError("no such bundle.", exit_code=2)))

    assert dragoman.main(["info"]) == 2
    assert capsys.readouterr().err == "dragoman info: no such bundle.\n"


def test_a_bug_is_one_line_too(command, capsys) -> None:
    command(raiser(ValueError("oops")))

    assert dragoman.main(["info"]) == 1
    assert "internal error, ValueError: oops" in capsys.readouterr().err


def test_a_bug_shows_its_traceback_on_request(command, monkeypatch) -> None:
    monkeypatch.setenv("DRAGOMAN_TRACEBACK", "1")
    command(raiser(ValueError("oops")))

    with pytest.raises(ValueError, match="oops"):
        dragoman.main(["info"])


def test_a_missing_extra_is_named(command, capsys) -> None:
    command(raiser(ModuleNotFoundError("No module named 'torch'", name="torch")))

    assert dragoman.main(["info"]) == 2
    assert "'.[train]'" in capsys.readouterr().err


def test_an_unknown_command_is_a_usage_error(capsys) -> None:
    with pytest.raises(SystemExit) as info:
        dragoman.main(["translat"])
    assert info.value.code == 2
    assert "invalid choice: 'translat'" in capsys.readouterr().err


def test_an_unknown_option_is_a_usage_error(command, capsys) -> None:
    command(lambda _: 0)

    assert dragoman.main(["info", "--fla", "3"]) == 2
    assert capsys.readouterr().err == (
        "dragoman info: unrecognized arguments: --fla 3 (see dragoman info --help)\n"
    )


def test_an_error_of_the_system_is_told_without_its_class(command, capsys) -> None:
    command(raiser(PermissionError(13, "Permission denied", "/root/bundle")))

    assert dragoman.main(["info"]) == 1
    assert capsys.readouterr().err == "dragoman info: /root/bundle: Permission denied\n"


def test_help_lists_every_command() -> None:
    shown = subprocess.run(
        [sys.executable, "dragoman.py", "--help"], capture_output=True, text=True, check=True
    ).stdout

    assert all(name in shown for name in dragoman._COMMANDS)


def test_a_closed_pipe_is_no_error_message() -> None:
    process = subprocess.run(
        f"{sys.executable} dragoman.py translate --help | true",
        shell=True,
        capture_output=True,
        text=True,
        check=False,
    )

    assert process.stderr == ""


def test_an_argument_that_is_no_text_is_told(command, capsys) -> None:
    command(lambda _: len("caf\udce9".encode()))

    assert dragoman.main(["info"]) == 2
    assert capsys.readouterr().err == "dragoman info: 'caf\\udce9' is not valid UTF-8.\n"


@pytest.mark.parametrize(
    "words", ["info --help <&- >&- 2>&-", "translate --file - --bundle none <&- >&-"]
)
def test_closed_standard_streams_are_no_internal_error(words: str) -> None:
    process = subprocess.run(
        f"{sys.executable} dragoman.py {words}",
        shell=True,
        capture_output=True,
        text=True,
        check=False,
    )

    assert "internal error" not in process.stderr
    assert process.returncode in (0, 2)


@pytest.mark.parametrize("words", [["serve", "--listen", ""], ["translate", "--address", "", "x"]])
def test_an_empty_address_is_no_default(words, capsys) -> None:
    assert dragoman.main(words) == 2
    assert "host:port" in capsys.readouterr().err.lower()


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf", "x"])
def test_a_time_that_is_none_is_wrong_usage(seconds: str, capsys) -> None:
    assert dragoman.main(["health", f"--timeout={seconds}"]) == 2
    assert "--timeout" in capsys.readouterr().err
