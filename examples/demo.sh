#!/usr/bin/env bash
# The main job on a CPU: two real H200 traces, then a newcomer's job made faster and proven, alone and on 2 ranks.
set -euo pipefail
cd "$(dirname "$0")/.."
export TOKENIZERS_PARALLELISM=false
runs=${RUNS_DIR:-runs}
traces=tests/traces
before=$traces/h200_qwen35_2b4_padded_fallback_1step.json.gz
after=$traces/h200_qwen35_2b4_packed_varlen_1step.json.gz

say() { printf '\n=== %s\n\n' "$*"; }

say "1. The same 2.4B training step on an H200, before and after (recorded traces)"
autotune diff "$before" "$after" --rows 6
say "   ... and why the first one is slow"
autotune analyze --quiet --runs-dir "$runs" --trace "$before" | head -n 3
printf '%s\n' \
  "before: nvidia-smi says the GPU is in use, yet 2,027-2,180 useful tokens/s (1,720-1,748 ms a step, unprofiled)" \
  "after:  13,015 useful tokens/s (522 ms a step, unprofiled)"

say "2. A newcomer's fine-tuning job, one process"
autotune optimize --steps 8 --runs-dir "$runs" -- python examples/chat_sft/train.py --epochs 1
autotune apply --runs-dir "$runs"

say "3. The same job under torchrun: FSDP2, two ranks"
autotune optimize --steps 8 --runs-dir "$runs" -- torchrun --nproc-per-node 2 examples/chat_sft/train.py --epochs 1 --max-length 768

say "4. The same job written well: nothing to do"
autotune analyze --quiet --runs-dir "$runs" -- python examples/tuned/train.py --epochs 1 | head -n 3
