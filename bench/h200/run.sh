#!/usr/bin/env bash
# The H200 runs, one stage per call:
#
#   setup                      unpack what .kit/*.tar.xz holds (wheelhouse/, tool/), make autotune's environment, copy the code
#   analyze RANKS [ARGS]       the diagnosis alone; ARGS are those of examples/founding_case/train.py
#   optimize RANKS MIN [ARGS]  the whole loop, and `resume MIN` to go on
#   start RANKS MIN [ARGS]     the loop in the background, for machines that are reached by short calls;
#   wait SECONDS               then look at it; `goon MIN` resumes it, `keep` brings its records to $OUT
#
# AUTOTUNE_OPTIONS holds further options of the loop, such as "--steps 8 --parity-steps 6" for steps of many seconds.
# Two GPUs: run.sh start 2 25 --size 27b --bf16-master --max-tokens 4096
# Another release of transformers for the job, in both arms: its wheel as .kit/transformers-*.whl at the time of setup.
# Expects examples/founding_case/data/chat.npz. Results go to $OUT (default ./h200-out), state that must last to $HOME/h200.
set -euo pipefail
cd "$(dirname "$0")/../.."
OUT=${OUT:-h200-out}; mkdir -p "$OUT"
STATE=$HOME/h200; mkdir -p "$STATE"
TOOL=$STATE/tool
export PYTHONUNBUFFERED=1 TOKENIZERS_PARALLELISM=false
export TRITON_CACHE_DIR=$STATE/triton TILELANG_CACHE_DIR=$STATE/tilelang
if [ -d "$STATE/transformers" ]; then export PYTHONPATH=$STATE/transformers${PYTHONPATH:+:$PYTHONPATH}; fi

autotune() { "$TOOL/bin/python" -m autotune "$@"; }

setup() {
  for kit in .kit/*.tar.xz; do [ -e "$kit" ] && tar -xJf "$kit" -C "$STATE"; done
  if [ -d "$STATE/tool" ] && [ ! -x "$TOOL/bin/python" ]; then mv "$STATE/tool" "$STATE/tool-wheels"; fi
  if [ -d "$STATE/tool-wheels" ] && [ ! -x "$TOOL/bin/python" ]; then
    python3 -m venv "$TOOL"
    site=$("$TOOL/bin/python" -c 'import site; print(site.getsitepackages()[0])')
    python3 -c 'import site; print(site.getsitepackages()[0])' > "$site/machine.pth"
    echo "$STATE/code" >> "$site/machine.pth"
    for more in .kit/more/*.whl; do [ -e "$more" ] && cp "$more" "$STATE/tool-wheels/"; done  # what the kit lacks: tomlkit
    "$TOOL/bin/pip" install -q --no-index --no-deps "$STATE"/tool-wheels/*.whl
  fi
  for wheel in .kit/transformers-*.whl; do
    [ -e "$wheel" ] && python3 -m pip install -q --no-index --no-deps --target "$STATE/transformers" "$wheel"
  done
  mkdir -p "$STATE/code"  # the background loop runs from a copy: the tree it was started from may go with the call
  [ . -ef "$STATE/code" ] || { cp -r . "$STATE/code/"; rm -rf "$STATE/code/.kit"; }
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
     -not -path '*/tree/*' -not -path '*/inject/*' -not -path './overlay/*' -size -14M -print0 | tar -czf - --null -T -) > "$OUT/run.tar.gz"
  ls -la "$OUT"
}

alive() { [ -e "$STATE/pid" ] && kill -0 "$(cat "$STATE/pid")" 2>/dev/null; }

background() { # background OPTIONS...: of autotune optimize
  cd "$STATE/code"
  setsid nohup "$TOOL/bin/python" -m autotune optimize --runs-dir "$STATE/runs" --wheelhouse "$STATE/wheelhouse" \
    ${AUTOTUNE_OPTIONS:-} "$@" > "$STATE/optimize.txt" 2>&1 < /dev/null &
  echo $! > "$STATE/pid"
}

look() { # look SECONDS: until the loop has ended, at most so long
  local end=$((SECONDS + $1))
  while alive && [ $SECONDS -lt $end ]; do sleep 2; done
  alive && echo "still at work" || echo "ended"
  nvidia-smi --query-gpu=memory.used,utilization.gpu,clocks.sm,temperature.gpu --format=csv,noheader
  cut -c1-400 "$STATE/optimize.txt" | tail -n 60
}

case ${1:?stage} in
  setup) setup ;;
  analyze) shift; autotune analyze --runs-dir "$STATE/runs" -- $(job "$@") 2>"$OUT/analyze.err" | tee "$OUT/analyze.txt" || true
           tail -n 15 "$OUT/analyze.err"; keep ;;
  optimize) shift; ranks=$1; minutes=$2; shift 2
           autotune optimize --runs-dir "$STATE/runs" --wheelhouse "$STATE/wheelhouse" --max-minutes "$minutes" \
             ${AUTOTUNE_OPTIONS:-} -- $(job "$ranks" "$@") 2>&1 | tee "$OUT/optimize.txt" || true
           keep ;;
  resume) shift; autotune optimize --runs-dir "$STATE/runs" --wheelhouse "$STATE/wheelhouse" --max-minutes "$1" \
             ${AUTOTUNE_OPTIONS:-} --resume latest 2>&1 | tee "$OUT/optimize.txt" || true
           keep ;;
  start) shift; ranks=$1; minutes=$2; shift 2; background --max-minutes "$minutes" -- $(job "$ranks" "$@") ;;
  goon) shift; alive || background --max-minutes "$1" --resume latest ;;
  wait) look "$2" ;;
  keep) keep; cp "$STATE/optimize.txt" "$OUT/" ;;
  *) echo "no such stage: $1" >&2; exit 2 ;;
esac
