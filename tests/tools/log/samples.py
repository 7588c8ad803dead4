"""Sample lines for scan tests: every signature's own samples and ordinary lines of healthy runs."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from firstfault_tools.knowledge.pack import read_yaml
from firstfault_tools.log.scan import build_set
from firstfault_tools.log.signature import SignatureSet, load_signatures

FOLDER = Path(__file__).parents[3] / "knowledge" / "signatures"

HEALTHY = (
    "[rank3]: 2026-06-01 00:00:00,096 INFO trainer: iteration      120/  500000 | consumed samples:       983040 | "
    "elapsed time per iteration (ms): 3962.4 | learning rate: 2.999E-04 | "
    "global batch size:  4096 | lm loss: 2.011660E+00 | loss scale: 1.0 | grad norm: 0.062 | "
    "number of skipped iterations:   0 | number of nan iterations:   0 |",
    "{'loss': 2.4183, 'grad_norm': 0.8213, 'learning_rate': 1.9e-05, 'epoch': 0.13}",
    " 13%|█▎        | 130/1000 [02:10<14:30,  1.00s/it]",
    "step: 412  loss:  2.31874  grad_norm:  0.7113  memory: 61.20GiB(77.38%)  tps: 7,412  tflops: 431.21  mfu: 43.60%",
    "Epoch 3 | step 1200/9000 | loss 1.9811 | lr 3.00e-04 | 412.3 ms/step | 19,870 tokens/s",
    "INFO data: shard 12 of part-000081211.arrow opened, 0.213 s, queue depth 7/8",
    "DEBUG allocator: reserved 3939.1 MiB, active 0.821 GiB, 31 segments",
    "INFO checkpoint: async writer idle, 12 items flushed, 3923.8 ms",
    "saving checkpoint at iteration 500 to /ckpt/run-7 in torch_dist format",
    "successfully saved checkpoint from iteration 500 to /ckpt/run-7 [ t 1/4, p 1/2 ]",
    "node1:411:902 [3] NCCL INFO Channel 00/0 : 3[3] -> 4[4] via P2P/IPC",
    "node1:411:902 [3] NCCL INFO comm 0x55d0 rank 3 nranks 16 cudaDev 3 nvmlDev 3 busId 9b000 commId 0xabc - Init COMPLETE",
    "[2026-06-01 10:00:00,123] [INFO] [logging.py:96:log_dist] [Rank 0] step=10, skipped=0, lr=[0.0001], mom=[(0.9, 0.95)]",
    "validation loss at iteration 1000 | lm loss value: 2.108811E+00 | lm loss PPL: 8.238447E+00 |",
    "(RayTrainWorker pid=4121, ip=10.0.0.7) step 44 loss=1.88 throughput=4123.1",
    "2026-06-01T10:00:00Z worker-3 I0601 10:00:00.000000 4121 train.cc:88] batch 120 done in 0.41 s",
)


@cache
def signature_set() -> SignatureSet:
    """The real signatures with the scanner's marks."""
    return build_set(load_signatures(FOLDER))


@cache
def matching_lines() -> tuple[str, ...]:
    """One-line `match` samples of every signature."""
    out = []
    for file in sorted(FOLDER.rglob("*.yaml")):
        samples = read_yaml(file.read_text(encoding="utf-8")).get("samples") or {}
        out += [s for s in samples.get("match") or () if isinstance(s, str) and "\n" not in s]
    return tuple(out)
