#!/usr/bin/env bash
# The H200 runs, one stage per call: setup | analyze | optimize | report.
# Expects .kit/*.tar.xz (wheelhouse/ and tool/) where present, and examples/founding_case/data/chat.npz.
# Results go to $OUT (default ./h200-out). State that must last between calls lies in $HOME/h200.
set -euo pipefail
cd "$(dirname "$0")/../.."
OUT=${OUT:-h200-out}; mkdir -p "$OUT"
STATE=$HOME/h200; mkdir -p "$STATE"
TOOL=$STATE/tool
export PYTHONUNBUFFERED=1 TOKENIZERS_PARALLELISM=false
export TRITON_CACHE_DIR=$STATE/triton TILELANG_CACHE_DIR=$STATE/tilelang

autotune() { "$TOOL/bin/python" -m autotune "$@"; }

setup() {
  for kit in .kit/*.tar.xz; do [ -e "$kit" ] && tar -xJf "$kit" -C "$STATE"; done
  if [ -d "$STATE/tool" ] && [ ! -x "$TOOL/bin/python" ]; then mv "$STATE/tool" "$STATE/tool-wheels"; fi
  if [ -d "$STATE/tool-wheels" ] && [ ! -x "$TOOL/bin/python" ]; then
    python3 -m venv "$TOOL"
    site=$("$TOOL/bin/python" -c 'import site; print(site.getsitepackages()[0])')
    python3 -c 'import site; print(site.getsitepackages()[0])' > "$site/machine.pth"
    pwd >> "$site/machine.pth"
    for more in .kit/more/*.whl; do [ -e "$more" ] && cp "$more" "$STATE/tool-wheels/"; done  # what the kit lacks: tomlkit
    "$TOOL/bin/pip" install -q --no-index --no-deps "$STATE"/tool-wheels/*.whl
  fi
  mkdir -p "$STATE/data"
  [ -e examples/founding_case/data/chat.npz ] && cp examples/founding_case/data/chat.npz "$STATE/data/" || true
  ls "$STATE" "$STATE"/wheelhouse 2>/dev/null || true
  nvidia-smi --query-gpu=name,memory.total,clocks.sm,temperature.gpu --format=csv
}

job() { # job RANKS [arguments of train.py]
  local ranks=$1; shift
  echo torchrun --nproc-per-node "$ranks" examples/founding_case/train.py --no-save --data "$STATE/data/chat.npz" "$@"
}

keep() { # bring the small records of the newest run back
  local run; run=$(ls -d "$STATE"/runs/at-* | tail -1)
  (cd "$run" && find . \( -name '*.json' -o -name '*.jsonl' -o -name '*.log' -o -name '*.patch' -o -name '*.diff' \) \
     -not -path '*/tree/*' -not -path '*/inject/*' -not -path './overlay/*' -size -3M -print0 | tar -czf - --null -T -) > "$OUT/run.tar.gz"
  ls -la "$OUT"
}

case ${1:?stage} in
  setup) setup ;;
  analyze) shift; autotune analyze --runs-dir "$STATE/runs" -- $(job "$@") 2>"$OUT/analyze.err" | tee "$OUT/analyze.txt" || true
           tail -n 15 "$OUT/analyze.err"; keep ;;
  optimize) shift; ranks=$1; minutes=$2; shift 2
           autotune optimize --runs-dir "$STATE/runs" --wheelhouse "$STATE/wheelhouse" --max-minutes "$minutes" -- \
             $(job "$ranks" "$@") 2>&1 | tee "$OUT/optimize.txt" || true
           keep ;;
  resume) shift; autotune optimize --runs-dir "$STATE/runs" --wheelhouse "$STATE/wheelhouse" --max-minutes "$1" --resume latest 2>&1 | tee "$OUT/optimize.txt" || true
           keep ;;
esac
