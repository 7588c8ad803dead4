#!/usr/bin/env bash
# Everything this project measures on a machine with two or more GPUs, in one command and under 8 minutes:
# the probe beside hand-made rates, two questions of the memory estimator, pipeline steps beside the simulation,
# memory of every rank of split steps beside the estimate.
# Usage, from the repository root: OUT=folder bash evals/device/final.sh       (7 files in $OUT)
set -u
out=${OUT:?set OUT to an empty folder}
here=$(cd "$(dirname "$0")" && pwd)
export PYTHONPATH="$here/../../tools" PYTHONUNBUFFERED=1
bash "$here/run_probe.sh"
probe=$?
echo; echo "== memory ($(date +%T))"
timeout 60 python3 "$here/measure_memory.py" "$out/memory.json" 2>&1 | grep -v Warning | tail -12
echo; echo "== pipeline ($(date +%T))"
timeout 200 python3 "$here/measure_pipeline.py" "$out/pipeline.json" --limit-s 120 2>&1 | grep -v Warning | tail -40
echo; echo "== split steps ($(date +%T))"
timeout 200 python3 "$here/measure_split.py" "$out/split.json" --limit-s 140 2>&1 | grep -v Warning | tail -40
echo "== done, probe code $probe ($(date +%T))"
exit $probe
