#!/usr/bin/env bash
# The served engine on a CUDA GPU beside torch on the same GPU: one table, a few minutes. Arguments go to `python -m benchmarks.gpu`:
#
#   benchmarks/gpu.sh --json gpu.json
#
# Makes the environment .venv-gpu in the checkout, once (some gigabytes: torch with CUDA, onnxruntime-gpu).
# PYTHON=python3.12        another interpreter for it
# GPU_PYTHON=/env/python   use this interpreter as it is; nothing is installed
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."

if ! nvidia-smi --list-gpus 2>/dev/null | grep -q '^GPU'; then
    echo "There is no CUDA GPU here (nvidia-smi finds none): nothing was measured." >&2
    exit 2
fi

if [ -z "${GPU_PYTHON:-}" ]; then
    environment=.venv-gpu
    GPU_PYTHON=$environment/bin/python
    if [ ! -e "$environment/installed.stamp" ] || [ pyproject.toml -nt "$environment/installed.stamp" ]; then
        echo "Preparing $environment (once) ..." >&2
        "${PYTHON:-python3}" -m venv --clear "$environment"
        # torch asks for CUDA libraries of one version exactly, and onnxruntime-gpu takes those too: so not the versions that the
        # image without torch has.
        grep -v '^nvidia-' constraints.txt >"$environment/constraints.txt"
        "$GPU_PYTHON" -m pip install --disable-pip-version-check --quiet \
            --constraint "$environment/constraints.txt" --editable '.[gpu,train,bench]'
        touch "$environment/installed.stamp"
    fi
fi

# Both packages hold the module `onnxruntime`: whichever was installed last would win.
if "$GPU_PYTHON" -c 'import importlib.metadata as m; m.version("onnxruntime")' 2>/dev/null; then
    echo "$GPU_PYTHON has onnxruntime beside onnxruntime-gpu: take an environment without it." >&2
    exit 1
fi

exec "$GPU_PYTHON" -m benchmarks.gpu "$@"
