#!/usr/bin/env bash
# The generated FSDP2 script on one H200, in at most 6 minutes: variants of compilation, each 12 steps after 8,
# side by side, and a profile of one step of the fastest.
#
#   bench/h200/fsdp2.sh                        2.4B hybrid; .kit/*.tar.xz has the fused kernels and autotune's needs
#   SIZE=tiny PYTHON=python bench/h200/fsdp2.sh        the same on a CPU, as a rehearsal
#
# Results in $OUT (default ./h200-out): table.md, logs, trace.json.gz, and caches.tar.gz.* of compiled kernels in
# pieces of 15 MiB. Put the pieces into .kit/ for the next visit; they are unpacked first.
set -euo pipefail
cd "$(dirname "$0")/../.."
SIZE=${SIZE:-2.4b}
OUT=$(realpath -m "${OUT:-h200-out}"); mkdir -p "$OUT"
STATE=${STATE:-$HOME/h200}; mkdir -p "$STATE"
WORK=$STATE/fsdp2; rm -rf "$WORK"; mkdir -p "$WORK"
CACHES=$STATE/caches; mkdir -p "$CACHES"
PYTHON=${PYTHON:-python3}
BUDGET_S=${BUDGET_S:-$([ "$SIZE" = tiny ] && echo 1800 || echo 340)}
export TRITON_CACHE_DIR=$CACHES/triton TORCHINDUCTOR_CACHE_DIR=$CACHES/inductor TILELANG_CACHE_DIR=$CACHES/tilelang
export TRITON_CACHE_AUTOTUNING=1 TORCHINDUCTOR_FX_GRAPH_CACHE=1 TORCHINDUCTOR_AUTOGRAD_CACHE=1 PYTHONUNBUFFERED=1 TOKENIZERS_PARALLELISM=false
RENDER=$PYTHON

left() { echo $((BUDGET_S - SECONDS)); }

if ls .kit/caches.tar.gz.* >/dev/null 2>&1; then cat .kit/caches.tar.gz.* | tar -xzf - -C "$CACHES"; fi
if [ "$SIZE" != tiny ]; then
  OUT=$OUT bench/h200/run.sh setup > "$OUT/setup.log" 2>&1
  RENDER=$STATE/tool/bin/python
  [ -d "$STATE/kernels" ] || $PYTHON -m pip install -q --no-index --no-deps --target "$STATE/kernels" "$STATE"/wheelhouse/*.whl
  export PYTHONPATH=$STATE/kernels
fi
PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH} "$RENDER" bench/h200/fsdp2_scripts.py render "$SIZE" "$WORK"

"$PYTHON" bench/h200/fsdp2_scripts.py weights "$SIZE" "$WORK" > "$OUT/weights.log" 2>&1

run() { # run NAME SCRIPT [options]: at most what is left of the time, the caches stay whatever happens
  local name=$1 script=$2; shift 2
  [ "$(left)" -gt 25 ] || { echo "$name: no time left"; return 0; }
  echo "$name starts with $(left) s left"
  (cd "$WORK" && timeout -s INT -k 10 "$(($(left) - 15))" "$PYTHON" -m torch.distributed.run --nproc-per-node 1 \
    "$script" "$@" --output-dir "$WORK/$name" --resume false) > "$OUT/$name.log" 2>&1 || echo "$name ended early: $(tail -n 1 "$OUT/$name.log")"
}

run never plain.py --compile never
run parts plain.py --compile parts
run blocks plain.py --compile blocks
"$PYTHON" bench/h200/fsdp2_scripts.py table "$WORK" | tee "$OUT/table.md"
best=$(sed -n '3,$p' "$OUT/table.md" | awk -F'|' 'NF > 6 {gsub(/[ ,]/, "", $3); print $3, $2}' | sort -rn | awk 'NR == 1 {print $2}')
run profile "$PWD/bench/h200/fsdp2_scripts.py" profile plain.py "$OUT/trace.json.gz" --compile "${best:-never}"
run parts-recomputed full.py --compile parts
"$PYTHON" bench/h200/fsdp2_scripts.py table "$WORK" | tee "$OUT/table.md"
tar -czf - -C "$CACHES" . | split -b 15m - "$OUT/caches.tar.gz."
cp "$WORK/plain.py" "$OUT/"
ls -la "$OUT"
echo "took $SECONDS s"
