#!/usr/bin/env bash
# Build the probe kit and run it on every GPU of this machine: plainly, beside hand-made measurements,
# with a competing load planted on the last GPU, and as ranks of a torchrun job. At most 4 files in $OUT.
# Usage, from the repository root: OUT=folder bash evals/device/run_probe.sh
set -u
out=${OUT:?set OUT to an empty folder}
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"; [ -n "${load:-}" ] && kill "$load" 2>/dev/null' EXIT
gpus=$(nvidia-smi -L | grep -c '^GPU')
last=$((gpus - 1))

PYTHONPATH="$here/../../tools" python3 - "$work" <<'PY'
import sys
from pathlib import Path
from firstfault_tools.probe.build import write_kit
print("kit:", write_kit(Path(sys.argv[1])))
PY
kit="$work/firstfault-probe.pyz"
say() { echo; echo "== $* ($(date +%T))"; }

say "1. plain probe on $gpus GPUs"
python3 "$kit" --out "$out/plain.jsonl" --limit-s 90 >/dev/null 2>"$work/plain.err" || tail -5 "$work/plain.err"
tail -1 "$out/plain.jsonl"

say "2. the same rates by hand"
timeout 80 python3 "$here/measure_by_hand.py" "$out/hand.jsonl" 2>&1 | grep -v Warning | tail -5
cat "$out/hand.jsonl"

say "3. competing load on GPU $last"
python3 "$here/load_gpu.py" "$last" 150 >"$work/load.txt" 2>&1 &
load=$!
for _ in $(seq 60); do grep -q loaded "$work/load.txt" && break; sleep 0.5; done
sleep 3
python3 "$kit" --tests gemm --gpus "$last" 2>/dev/null | grep -E '"(refused|busy)"' | cut -c1-400
python3 "$kit" --allow-busy --tests gemm,copy,host_link,all_reduce --out "$out/planted.jsonl" --limit-s 60 \
  >/dev/null 2>"$work/planted.err" || tail -5 "$work/planted.err"
kill "$load" 2>/dev/null; wait "$load" 2>/dev/null; load=

say "4. as ranks of a job"
timeout 60 python3 -m torch.distributed.run --standalone --nproc-per-node "$gpus" "$kit" --tests gemm,copy,all_reduce,skew \
  >"$work/ranked.txt" 2>"$work/ranked.err" || tail -5 "$work/ranked.err"
grep '^{' "$work/ranked.txt" >"$out/ranked.jsonl"
grep -cE '"status": "ok"' "$out/ranked.jsonl"
grep -hE '"status": "(failed|timeout)"' "$out"/*.jsonl | cut -c1-400

say "comparison"
python3 "$here/compare_rates.py" "$out/plain.jsonl" "$out/hand.jsonl" "$out/planted.jsonl" "$last"
code=$?
say "done, code $code"
exit $code
