#!/usr/bin/env bash
# The 27B job on the GPUs of one host, stage by stage; every stage can be repeated and goes on where it stopped.
#
#   bash bench/eight_gpus.sh analyze    the unchanged job: steps, exposed communication, bytes and bandwidth per
#                                       collective, stragglers over all ranks (every rank is profiled)
#   bash bench/eight_gpus.sh optimize   the ladder with intervals, plain FSDP2
#   bash bench/eight_gpus.sh hsdp       the same with 2 replicas
#   bash bench/eight_gpus.sh scaling    timed steps of the unchanged job and of the kept result on 2, 4, ... ranks
#   bash bench/eight_gpus.sh stop       ten short watches: each must leave no process behind and exit with 0
#   SIZE=tiny RANKS=8 TOKENS=512 bash bench/eight_gpus.sh rehearse   all of it on a CPU with gloo, in minutes
#
# Set WHEELS to a folder of wheels where there is no network. Results lie in $OUT (default eight-gpus-out).
set -euo pipefail
cd "$(dirname "$0")/.."
RANKS=${RANKS:-8} SIZE=${SIZE:-27b} TOKENS=${TOKENS:-8192} OUT=${OUT:-eight-gpus-out} STEPS=${STEPS:-10}
MINUTES=${MINUTES:-60} DATA=${DATA:-examples/founding_case/data/chat.npz}
RUNS=$OUT/runs; mkdir -p "$RUNS"
PYTHON=${PYTHON:-python}
export PYTHONUNBUFFERED=1 TOKENIZERS_PARALLELISM=false TRITON_CACHE_DIR=${TRITON_CACHE_DIR:-$OUT/triton}
[ -e "$DATA" ] || $PYTHON examples/founding_case/prepare.py

autotune() { $PYTHON -m autotune "$@"; }
job() { # job RANKS [arguments of train.py]
  local ranks=$1; shift
  echo torchrun --nproc-per-node "$ranks" examples/founding_case/train.py --no-save --size "$SIZE" \
    --max-tokens "$TOKENS" --data "$DATA" "$@"
}
ranks_list() { seq -s, 0 $((RANKS - 1)); }
latest() { find "$RUNS/$1" -mindepth 1 -maxdepth 1 -type d -name 'at-*' | sort | tail -n 1; }

analyze() {
  autotune analyze --runs-dir "$RUNS/analyze" --profile-ranks "$(ranks_list)" --steps "$STEPS" -- $(job "$RANKS") \
    | tee "$OUT/analyze.txt"
  autotune trace "$(latest analyze)"/launches/observe/raw/rank-*/trace.json.gz > "$OUT/collectives.txt"
}

optimize() { # optimize NAME [arguments of train.py]
  local name=$1; shift
  local more=(); [ -z "${WHEELS:-}" ] || more=(--wheelhouse "$WHEELS")
  local go=(-- $(job "$RANKS" "$@")); [ -z "$(latest "$name" 2>/dev/null)" ] || go=(--resume latest)
  autotune optimize --runs-dir "$RUNS/$name" --steps "$STEPS" --max-minutes "$MINUTES" "${more[@]}" "${go[@]}" \
    | tee "$OUT/$name.txt"
}

scaling() {
  local ranks
  for ((ranks = 2; ranks <= RANKS; ranks *= 2)); do
    autotune analyze --runs-dir "$RUNS/scaling-$ranks" --steps "$STEPS" --json -- $(job "$ranks") > "$OUT/scaling-$ranks.json"
  done
  $PYTHON - "$OUT" <<'PY'
import json, pathlib, sys
rows = []
for path in sorted(pathlib.Path(sys.argv[1]).glob("scaling-*.json"), key=lambda p: int(p.stem.split("-")[1])):
    facts = json.loads(path.read_text())["facts"]
    ranks, rate = int(path.stem.split("-")[1]), facts["run.useful_tokens_per_s"]["value"]
    rows.append((ranks, rate / ranks))
for ranks, per_gpu in rows:
    print(f"{ranks} ranks: {per_gpu:,.0f} useful tokens/s per rank, {per_gpu / rows[0][1]:.1%} of {rows[0][0]} ranks")
PY
}

stop() {
  local turn
  for turn in 1 2 3 4 5 6 7 8 9 10; do
    timeout 600 $PYTHON -m autotune analyze --runs-dir "$RUNS/stop" --steps 5 --quiet -- $(job "$RANKS") > /dev/null
    ! pgrep -f founding_case/train.py > /dev/null || { echo "turn $turn left processes behind"; return 1; }
    echo "turn $turn: stopped cleanly"
  done
}

case ${1:?stage: analyze | optimize | hsdp | scaling | stop | rehearse} in
  analyze) analyze ;;
  optimize) optimize optimize ;;
  hsdp) optimize hsdp --replicas 2 ;;
  scaling) scaling ;;
  stop) stop ;;
  rehearse) analyze; optimize optimize; optimize hsdp --replicas 2; scaling; stop ;;
  *) echo "no such stage: $1" >&2; exit 2 ;;
esac
