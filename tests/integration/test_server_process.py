"""The server as a process: signals, exit codes, and one clear message for everything that is wrong at the start."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import grpc
import pytest

from deploy.loadtest.clients import Load
from export.bundle import describe_file, write_manifest
from protos.dragoman.v1 import translation_pb2_grpc
from tests.builders import make_manifest
from tests.fake_app import fake_server, make_request

REPOSITORY = Path(__file__).parents[2]


def _serve(*words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "service", *words],
        check=False,
        cwd=REPOSITORY,
        env={
            **os.environ,
            "DRAGOMAN_SERVER__LISTEN": "127.0.0.1:0",
            "DRAGOMAN_METRICS__LISTEN": "",
            **environ,
        },
        capture_output=True,
        text=True,
        timeout=60,
    )


def _assert_refused(done: subprocess.CompletedProcess[str], *parts: str) -> None:
    assert done.returncode == 2
    message = [line for line in done.stderr.splitlines() if not line.startswith("{")]
    assert len(message) == 1
    for part in parts:
        assert part in message[0]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains_and_ends_with_0(number: signal.Signals) -> None:
    with fake_server(0.05) as (process, address, _):
        answers: list[str] = []

        def ask() -> None:
            with grpc.insecure_channel(address) as channel:
                stub = translation_pb2_grpc.TranslationServiceStub(channel)
                answer = stub.TranslateText(make_request("one two three four"))
                answers.append(answer.translations[0].translated_text)

        clients = [threading.Thread(target=ask) for _ in range(10)]
        for client in clients:
            client.start()
        time.sleep(0.1)
        process.send_signal(number)
        for client in clients:
            client.join(20)
        assert answers == ["ONE TWO THREE FOUR"] * 10
        assert process.wait(20) == 0
        assert process.stderr is not None
        lines = [json.loads(line) for line in process.stderr]
        messages = [line["message"] for line in lines if " ended with " not in line["message"]]
        assert messages[-2:] == ["Shutting down", "Stopped"]


def test_a_second_signal_ends_at_once() -> None:
    with fake_server(30) as (process, address, _), grpc.insecure_channel(address) as channel:
        stub = translation_pb2_grpc.TranslationServiceStub(channel)
        call = stub.TranslateText.future(make_request("one"))
        time.sleep(0.2)
        process.send_signal(signal.SIGTERM)
        time.sleep(0.5)
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(5) == 128 + signal.SIGTERM
        assert call.exception().code() is grpc.StatusCode.UNAVAILABLE


def test_a_signal_before_there_is_a_server_ends_with_0_at_once(tmp_path: Path) -> None:
    config = tmp_path / "dragoman.toml"
    os.mkfifo(config)
    command = [sys.executable, "dragoman.py", "serve", "--config", str(config)]
    with subprocess.Popen(command, cwd=REPOSITORY) as process, config.open("wb"):
        process.send_signal(signal.SIGTERM)  # while it waits for its settings
        assert process.wait(20) == 0


def _bundle(directory: Path) -> Path:
    (directory / "weights.bin").write_bytes(b"x" * 100)
    for name in ("encoder.onnx", "decoder.onnx", "tokenizer.spm"):
        (directory / name).write_bytes(name.encode())
    files = {path.name: describe_file(path) for path in directory.iterdir()}
    write_manifest(directory, make_manifest(files=files))
    return directory


def test_a_missing_bundle_is_one_message(tmp_path: Path) -> None:
    done = _serve(DRAGOMAN_MODELS__BUNDLES=str(tmp_path / "none"))
    _assert_refused(done, str(tmp_path / "none"), "`manifest.json` cannot be read: No such file")


def test_a_truncated_and_edited_bundle_is_one_message_with_every_fault(tmp_path: Path) -> None:
    bundle = _bundle(tmp_path)
    (bundle / "weights.bin").write_bytes(b"x" * 50)
    (bundle / "tokenizer.spm").write_bytes(b"tokenizer.spn")
    done = _serve(DRAGOMAN_MODELS__BUNDLES=str(bundle))
    _assert_refused(
        done, "'weights.bin' has 50 bytes, but must have 100", "'tokenizer.spm' has SHA-256"
    )


def test_a_bundle_whose_content_is_no_model_is_one_message(tmp_path: Path) -> None:
    done = _serve(DRAGOMAN_MODELS__BUNDLES=str(_bundle(tmp_path)))
    _assert_refused(done, "tokenizer.spm")


def test_a_config_with_a_typo_is_one_message(tmp_path: Path) -> None:
    path = tmp_path / "dragoman.toml"
    path.write_text('[server]\nlisten_on = "127.0.0.1:1"\n', encoding="utf-8")
    _assert_refused(_serve(str(path)), "`server.listen_on` does not exist, did you mean `listen`?")


def test_a_provider_that_is_not_there_is_one_message() -> None:
    _assert_refused(_serve(DRAGOMAN_ENGINE__PROVIDER="cuda"), "cuda")


def test_two_bundles_of_one_name_are_one_message(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    first.mkdir()
    shutil.copytree(_bundle(first), second)
    done = _serve(DRAGOMAN_MODELS__BUNDLES=f"{first}:{second}")
    _assert_refused(done, "Two bundles have the model name 'en-pt'", str(first), str(second))


def test_calls_that_come_too_late_are_unavailable_which_clients_try_again() -> None:
    with (
        fake_server(0.002) as (process, address, _),
        Load(address, num_clients=16, texts=["one two"], stop_at_failure=True) as load,
    ):
        time.sleep(0.5)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    codes = {call.code for call in load.calls}
    assert codes == {grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE}
