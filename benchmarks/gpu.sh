#!/bin/sh
# All that there is to measure on a GPU, in at most 8 minutes: the lab's step beside TRL's, two runs beside each other,
# then the tests that need a GPU.
#   sh benchmarks/gpu.sh PROMPTS.jsonl [FOLDER]
# PROMPTS.jsonl has prompt (or question) and answer, such as GSM8K's test rows. Results go to FOLDER (build/gpu). The
# machine needs torch with CUDA and no network: packages that are missing are installed from wheels in FOLDER/wheels,
# made elsewhere by `pip download --no-deps -d wheels -r requirements.txt -r requirements-bench.txt`.
set -u
prompts=${1:?Usage: sh benchmarks/gpu.sh PROMPTS.jsonl [FOLDER]}
folder=${2:-build/gpu}
mkdir -p "$folder"
if [ -d "$folder/wheels" ]; then
    python3 -m pip install -q --no-index --no-deps --target "$folder/site" "$folder"/wheels/*.whl
    PYTHONPATH="$folder/site${PYTHONPATH:+:$PYTHONPATH}"
fi
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}" HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false PYTHONUNBUFFERED=1
step() {  # name, seconds at the most, command: one that fails takes nothing from the others
    name=$1 most=$2
    shift 2
    echo "== $name"
    timeout "$most" "$@" >"$folder/$name.txt" 2>&1 || echo "$name ended with status $?"
    tail -n 15 "$folder/$name.txt"
}
compare() {  # model, seconds at the most, contenders, further options
    model=$1 most=$2 contenders=$3
    shift 3
    # shellcheck disable=SC2086  # contenders are words
    step "$model" "$most" python3 -m benchmarks.grpo_step --device cuda --models "$model" --prompts "$prompts" \
        --contenders $contenders --rounds 2 --steps 2 --json "$folder/$model.json" "$@"
}
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
python3 -c "import torch, transformers; print('torch', torch.__version__, 'transformers', transformers.__version__)"
trl=$(python3 -c "from importlib.util import find_spec; print('trl-bf16' if find_spec('trl') else '')")
compare llama-60m 100 "$trl lab-bf16"
compare llama-342m 170 "$trl lab-bf16" --gradient-checkpointing --warm-up 2 --rounds 1 --steps 3
compare qwen2-494m 90 lab-bf16 --warm-up 2 --rounds 1 --steps 3
echo "== two runs on one GPU"
mkdir -p "$folder/beside"
(folder="$folder/beside"; compare llama-60m 60 lab-bf16 --warm-up 2 --rounds 1 --steps 20 >"$folder/first.txt") &
(folder="$folder/beside"; compare llama-342m 60 lab-bf16 --warm-up 2 --rounds 1 --steps 10)
wait
cat "$folder/beside/first.txt"
step tests 90 python3 -m pytest tests/cuda -q -p no:cacheprovider --ignore tests/cuda/test_vllm.py
