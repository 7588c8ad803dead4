#!/usr/bin/env bash
# Everything this project measures on a machine with two or more GPUs, in one command and under 5 minutes:
# the probe beside hand-made rates, two questions of the memory estimator, pipeline steps beside the simulation.
# Usage, from the repository root: OUT=folder bash evals/device/final.sh       (6 files in $OUT)
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
echo "== done, probe code $probe ($(date +%T))"
exit $probe
