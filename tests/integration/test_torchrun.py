"""Two processes on CPUs, started by torchrun, train what one process trains with batches twice as many."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from model.checkpoint import load_model
from model.recipes.distiller import StageLoss
from model.train import run
from tests.tiny_distiller import ONE_UPDATE, create_distiller
from tests.tiny_models import SENTENCES

ROOT = Path(__file__).resolve().parents[2]
STEPS, STOPPED_AT = 6, 3


def _write(folder: Path, **training: int) -> Path:
    folder.mkdir()
    words = sorted({word for sentence in SENTENCES for word in sentence.split()})
    pairs = [(" ".join(words[i : i + 1 + i % 4]), words[i].upper()) for i in range(len(words))]
    for name, chosen in (("train.tsv", pairs), ("valid.tsv", pairs[::5])):
        text = "".join(f"{source}\t{target}\n" for source, target in chosen)
        (folder / name).write_text(text, encoding="utf-8")
    settings = {"max_steps": STEPS, "warmup_steps": 2, "batch_tokens": 60, "log_every_steps": 1}
    settings |= {"validate_every_steps": 3, "checkpoint_every_steps": 3, "average_checkpoints": 2}
    path = folder / "recipe.toml"
    path.write_text(
        'output = "run"\n'
        "[model]\nd_model = 16\nnum_heads = 2\nd_ff = 32\nencoder_layers = 1\ndecoder_layers = 1\n"
        "dropout = 0.0\n[tokenizer]\nvocab_size = 330\n"
        '[data]\ntrain = ["train.tsv"]\nvalid = ["valid.tsv"]\nmax_source_tokens = 60\n'
        'max_target_tokens = 60\n[training]\ndevice = "cpu"\nlearning_rate = 0.01\n'
        + "".join(f"{name} = {value}\n" for name, value in {**settings, **training}.items()),
        encoding="utf-8",
    )
    return path


def _torchrun(*words: str, processes: int = 2) -> str:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    result = subprocess.run(
        [*command, f"--nproc-per-node={processes}", *words],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def _train(config: Path, processes: int = 2) -> None:
    _torchrun(str(ROOT / "dragoman.py"), "train", str(config), processes=processes)


def _events(config: Path, name: str) -> list[dict[str, Any]]:
    lines = (config.parent / "run" / "log.jsonl").read_text().splitlines()
    return [event for event in map(json.loads, lines) if event["event"] == name]


def _weights(config: Path) -> dict[str, torch.Tensor]:
    return load_model(config.parent / "run" / "checkpoints" / "last").state_dict()


@pytest.fixture(scope="module")
def two_processes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = _write(tmp_path_factory.mktemp("two") / "straight", accumulation=2)
    _train(config)
    return config


def test_two_processes_learn_what_one_does_with_twice_as_many_batches(
    two_processes: Path, tmp_path: Path
) -> None:
    alone = _write(tmp_path / "alone", accumulation=4)
    run(alone)
    expected, found = _events(alone, "step"), _events(two_processes, "step")
    assert len(found) == len(expected) == STEPS
    for name in ("loss", "nll", "gradient_norm", "learning_rate"):
        assert [step[name] for step in found] == pytest.approx(
            [step[name] for step in expected], rel=1e-4
        )
    for name in ("step", "epoch", "target_tokens"):
        assert [step[name] for step in found] == [step[name] for step in expected]
    held_out = [
        [event["nll"] for event in _events(p, "validation")] for p in (two_processes, alone)
    ]
    assert held_out[0] == pytest.approx(held_out[1], rel=1e-4)
    weights = _weights(alone)
    for name, tensor in _weights(two_processes).items():
        # The gradient of a key's bias is zero but for rounding, which Adam blows up.
        assert name.endswith("key_proj.bias") or torch.allclose(tensor, weights[name], atol=1e-4)


def test_only_the_first_process_writes(two_processes: Path) -> None:
    assert len(_events(two_processes, "start")) == 1
    assert _events(two_processes, "start")[0]["processes"] == 2
    assert len(_events(two_processes, "checkpoint")) == STEPS // 3
    assert len(_events(two_processes, "average")) == 1


def test_two_processes_that_were_stopped_go_on_bit_for_bit(
    two_processes: Path, tmp_path: Path
) -> None:
    config = _stop_and_go_on(tmp_path / "stopped", processes=2, accumulation=2)
    _require_same_run(config, two_processes)


@pytest.mark.slow
def test_three_processes_go_on_bit_for_bit_although_sums_of_three_depend_on_their_order(
    tmp_path: Path,
) -> None:
    straight = _write(tmp_path / "straight")
    _train(straight, processes=3)
    _require_same_run(_stop_and_go_on(tmp_path / "stopped", processes=3), straight)


def _stop_and_go_on(folder: Path, *, processes: int, **training: int) -> Path:
    config = _write(folder, **training, max_steps=STOPPED_AT)
    _train(config, processes)
    text = config.read_text(encoding="utf-8")
    config.write_text(text.replace(f"max_steps = {STOPPED_AT}", f"max_steps = {STEPS}"))
    _train(config, processes)
    return config


def _require_same_run(config: Path, other: Path) -> None:
    losses = [[step["loss"] for step in _events(path, "step")] for path in (config, other)]
    assert losses[0] == losses[1]
    weights = _weights(other)
    assert all(torch.equal(tensor, weights[name]) for name, tensor in _weights(config).items())


def test_no_thread_of_the_group_is_left_to_abort_the_process(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import os, pathlib, torch\n"
        "from model.processes import join_processes\n"
        "def learn(processes):\n"
        "    processes.share(torch.nn.Linear(1, 1))(torch.ones(1)).backward()\n"
        "    tell(f'inside {any_gloo()}')\n"
        "def any_gloo():\n"
        "    names = [path.read_text() for path in pathlib.Path('/proc/self/task').glob('*/comm')]\n"
        "    return any('gloo' in name for name in names)\n"
        "def tell(line):\n"
        "    os.write(1, f'{line}\\n'.encode())\n"  # one write: two processes share the pipe
        "with join_processes('cpu') as processes:\n"
        "    learn(processes)\n"
        "tell(f'after {any_gloo()}')\n"
    )
    assert sorted(_torchrun(str(script)).splitlines()) == ["after False"] * 2 + ["inside True"] * 2


def test_two_processes_distil_with_the_mean_of_their_gradients(tmp_path: Path) -> None:
    _torchrun(str(ROOT / "tests" / "tiny_distiller.py"), str(tmp_path / "two"))
    distiller = create_distiller(tmp_path / "alone", ONE_UPDATE)
    (stage,) = ONE_UPDATE
    groups = stage.parameter_groups(distiller.student)
    optimizer = torch.optim.Adam(groups, betas=(0.9, 0.98), eps=1e-9)
    for group in optimizer.param_groups:
        group["lr"] = group["peak"] * stage.learning_rate_factor(0.0)
    loss = StageLoss(stage, distiller.teacher, distiller.student)
    batches = [distiller._next_batch(stage) for _ in range(2)]
    words = [distiller._choose_words(stage, batch) for batch in batches]
    sum(loss(*each) for each in zip(batches, words, strict=True)).div(2).backward()
    trained = [p for group in optimizer.param_groups for p in group["params"]]
    torch.nn.utils.clip_grad_norm_(trained, 1.0)
    optimizer.step()
    together = load_model(tmp_path / "two" / "stage-one").state_dict()
    start = create_distiller(tmp_path / "start", ONE_UPDATE).student.state_dict()
    assert any(not torch.equal(start[name], together[name]) for name in start)
    for name, tensor in distiller.student.state_dict().items():
        torch.testing.assert_close(tensor, together[name], atol=1e-6, rtol=0)
    log = (tmp_path / "two" / "log.jsonl").read_text().splitlines()
    assert [json.loads(line)["event"] for line in log] == ["start", "checkpoint"]
