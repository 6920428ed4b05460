"""The real command, in a process of its own, on the embedded model."""

import contextlib
import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

SENTENCE = "The committee decided on Tuesday that the budget would not be approved."
TO_PORTUGUESE = ("translate", "--target", "pt")
LINES = ["Good morning.", "", "Where is the railway station?", "  Thank you.  "]


def run(*words: str, stdin: bytes | None = None, **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, str(ROOT / "dragoman.py"), *words],
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        capture_output=True,
        env={**os.environ, **environment},
        timeout=120,
        check=False,
    )


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def start_server(*words: str, metrics: str = "") -> tuple[subprocess.Popen, str]:
    address = f"127.0.0.1:{free_port()}"
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "dragoman.py"), "serve", "--listen", address, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "DRAGOMAN_METRICS__LISTEN": metrics or f"127.0.0.1:{free_port()}"},
    )
    deadline = time.monotonic() + 60
    while process.poll() is None and run("health", "--address", address).returncode:
        assert time.monotonic() < deadline
    return process, address


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    process, address = start_server()
    yield address
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 0


def test_a_sentence_becomes_portuguese() -> None:
    result = run(*TO_PORTUGUESE, SENTENCE)

    assert result.returncode == 0, result.stderr
    assert result.stderr == b""
    translation = result.stdout.decode()
    assert re.search(r"comissão|comité|comitê", translation)
    assert re.search(r"orçamento", translation)
    assert re.search(r"terça", translation)


def test_without_languages_the_embedded_models_are_named() -> None:
    result = run("translate", SENTENCE)
    assert result.returncode == 2
    for words in (b"several models fit", b"en to pt (en-pt)", b"pt to en (pt-en)"):
        assert words in result.stderr


def test_the_server_and_this_process_give_the_same_answers(server) -> None:
    stdin = "\n".join([*LINES, SENTENCE, ""]).encode()

    here = run(*TO_PORTUGUESE, stdin=stdin)
    there = run(*TO_PORTUGUESE, "--address", server, stdin=stdin)

    assert here.returncode == there.returncode == 0, here.stderr + there.stderr
    assert here.stdout == there.stdout
    answers = here.stdout.decode().split("\n")
    assert len(answers) == len(LINES) + 2
    assert answers[1] == ""
    assert answers[3].startswith("  ")
    assert answers[3].endswith("  ")


def test_json_tells_scores_and_alternatives(server) -> None:
    result = run(*TO_PORTUGUESE, SENTENCE, "--address", server, "--json", "--alternatives", "2")

    answer = json.loads(result.stdout)
    assert answer["score"] < 0
    assert answer["truncated"] is False
    assert len({answer["translated_text"], *answer["alternatives"]}) == 3


def test_the_python_example_of_the_readme_works(server) -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    example = re.search(r"```python\n(.*?)```", readme, re.DOTALL)[1]

    result = subprocess.run(
        [sys.executable, "-c", example.replace("127.0.0.1:50051", server)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )

    assert result.stdout.startswith("Bom dia.\n")
    assert len(result.stdout.splitlines()) == 2


def test_a_long_input_comes_back_in_order(server, tmp_path) -> None:
    path = tmp_path / "numbers.txt"
    path.write_text("".join(f"Room {number}.\n" for number in range(300)))

    result = run(*TO_PORTUGUESE, "--address", server, "--beam-size", "1", "--file", str(path))

    assert result.returncode == 0, result.stderr
    lines = result.stdout.decode().splitlines()
    assert len(lines) == 300
    found = [re.search(r"\d+", line) for line in lines]
    right = sum(match is not None and int(match[0]) == n for n, match in enumerate(found))
    assert right >= 290  # the model may write a number another way


NUM_LINES = 4000
"""So many that they take longer than the second after which progress is shown, on any machine."""


def test_progress_on_a_terminal_leaves_the_result_alone(server, tmp_path) -> None:
    path = tmp_path / "many.txt"
    path.write_text("Good morning.\n" * NUM_LINES)
    terminal, other_end = pty.openpty()
    with open(tmp_path / "result.txt", "wb") as result:
        process = subprocess.Popen(
            [sys.executable, str(ROOT / "dragoman.py"), *TO_PORTUGUESE, "--address", server]
            + ["--beam-size", "16", "--file", str(path)],
            stdout=result,
            stderr=other_end,
        )
        shown = b""
        os.close(other_end)
        with contextlib.suppress(OSError):  # how a terminal says that the other end is closed
            while chunk := os.read(terminal, 4096):
                shown += chunk
    os.close(terminal)

    assert process.wait(10) == 0
    lines = (tmp_path / "result.txt").read_bytes().splitlines()
    assert len(lines) == NUM_LINES
    assert len(set(lines)) == 1
    assert f"{NUM_LINES} lines".encode() in shown
    assert lines[0] not in shown


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--source", "xx"], "xx"),
        (["--beam-size", "0"], "beam_size"),
        (["--beam-size", "1000"], "beam_size"),
        (["--length-penalty", "-1"], "length_penalty"),
        (["--model", "nope"], "nope"),
    ],
)
@pytest.mark.parametrize("way", ["server", "process"])
def test_what_cannot_be_served_is_one_line_and_exit_code_2(server, words, message, way) -> None:
    place = ["--address", server] if way == "server" else []

    result = run(*TO_PORTUGUESE, "hello", *place, *words)

    assert result.returncode == 2
    assert message in result.stderr.decode()
    assert len(result.stderr.splitlines()) == 1
    assert result.stdout == b""


def test_bytes_that_are_not_utf8_are_refused(server) -> None:
    result = run(*TO_PORTUGUESE, "--address", server, stdin=b"fine\n\xff\xfe\n")

    assert result.returncode == 2
    assert b"line 2 of standard input is not valid UTF-8" in result.stderr
    assert result.stdout.count(b"\n") == 1


def test_an_argument_that_is_not_utf8_is_refused() -> None:
    result = subprocess.run(
        [sys.executable, str(ROOT / "dragoman.py"), *TO_PORTUGUESE, b"\xff\xfe"],
        capture_output=True,
        timeout=60,
        check=False,
    )

    assert result.returncode == 2
    assert len(result.stderr.splitlines()) == 1


def test_health_tells_a_live_server_from_none(server) -> None:
    assert run("health", "--address", server).returncode == 0
    assert run("health", "--address", server, "--service", "").returncode == 0
    assert run("health", "--address", server, "--service", "nope").returncode == 1
    dead = run("health", "--address", "127.0.0.1:1")
    assert dead.returncode == 1
    assert len(dead.stderr.splitlines()) == 1


def test_a_reader_that_leaves_early_causes_no_message(server, tmp_path) -> None:
    path = tmp_path / "many.txt"
    path.write_text("Good morning.\n" * 500)
    translate = f"{sys.executable} {ROOT / 'dragoman.py'} {' '.join(TO_PORTUGUESE)}"
    command = f"{translate} --address {server} --file {path} | head -1"

    result = subprocess.run(command, shell=True, capture_output=True, timeout=60, check=False)

    assert result.stdout.count(b"\n") == 1
    assert result.stderr == b""


def test_a_port_in_use_is_one_message(server) -> None:
    result = run("serve", "--listen", server, DRAGOMAN_METRICS__LISTEN=f"127.0.0.1:{free_port()}")

    assert result.returncode == 2
    assert server.encode() in result.stderr
    assert b"Traceback" not in result.stderr


def test_a_typo_in_the_configuration_names_the_right_key(tmp_path) -> None:
    path = tmp_path / "dragoman.toml"
    path.write_text("[server]\nlisten_on = 'x'\n")

    result = run("serve", "--config", str(path))

    assert result.returncode == 2
    assert b"did you mean `listen`" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_bundle_that_is_not_there_is_one_message(tmp_path) -> None:
    serve = ["serve", "--listen", f"127.0.0.1:{free_port()}"]
    for words in (serve, ["translate", "hello"], ["info"]):
        flag = [] if words == ["info"] else ["--bundle"]
        result = run(*words, *flag, str(tmp_path / "nothing"), DRAGOMAN_METRICS__LISTEN="")

        assert result.returncode == 2
        assert b"nothing" in result.stderr
        assert len(result.stderr.splitlines()) == 1


def wait_until_something_runs(metrics: str) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with urllib.request.urlopen(f"http://{metrics}/metrics") as page:
            text = page.read().decode()
        gauges = re.findall(r"^dragoman_running_sequences\{.*\} (.*)$", text, re.MULTILINE)
        if any(float(gauge) > 0 for gauge in gauges):
            return
        time.sleep(0.01)
    raise AssertionError("no sentence was ever decoded")


def test_sigterm_lets_running_requests_finish() -> None:
    metrics = f"127.0.0.1:{free_port()}"
    process, address = start_server(metrics=metrics)
    client = subprocess.Popen(
        [sys.executable, str(ROOT / "dragoman.py"), *TO_PORTUGUESE, "--address", address, "--json"]
        + [" ".join([SENTENCE] * 100)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    wait_until_something_runs(metrics)
    process.send_signal(signal.SIGTERM)
    out, err = client.communicate(timeout=60)
    process.communicate(timeout=60)

    assert process.returncode == 0
    assert client.returncode == 0, err
    assert json.loads(out)["truncated"] is False
