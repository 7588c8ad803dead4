"""Zeros that should be numbers are told, and zeros that are as they should be are not."""

from __future__ import annotations

from tests.rows import each_row

from firstfault_tools.findings import Category, Level
from firstfault_tools.metrics.learning.zero_reports import find_in_lines

STEPS = [
    "{'loss': 1.2, 'learning_rate': 1e-4, 'epoch': 0.1}",
    "{'loss': 1.1, 'learning_rate': 1e-4, 'epoch': 0.2}",
]
TOLD = [
    ("trainable", ["trainable params: 0 || all params: 6,738,415,616 || trainable%: 0.0", *STEPS], Category.CODE_BUG),
    ("trainable", ["model: 86.6M params, 0 trainable", *STEPS], Category.CODE_BUG),
    ("optimizer_members", ["AdamW, optimizer params: 0 of 312 are in model.parameters()"], Category.CODE_BUG),
    ("optimizer_state", ["Resuming from checkpoint a/last.pt", "optimizer state entries: 0"], Category.CHECKPOINT),
    ("optimizer_state", ["resume: last.pt", "SGD 3 groups, 160 tensors, 0 momentum buffers"], Category.CHECKPOINT),
    ("optimizer_state", ["resumed at step 900", ">>> len(optimizer.state_dict()['state'])", "0"], Category.CHECKPOINT),
    ("loaded_keys", ["loaded 0 / 318 keys (strict=False)"], Category.CHECKPOINT),
    ("loaded_keys", ["adapter keys matched: 0/448"], Category.CHECKPOINT),
    ("adapter", [*STEPS, "lora_B nonzero: 0/112"], Category.CODE_BUG),
    ("adapter", [*STEPS, ">>> sum(p.abs().sum() for n, p in m.named_parameters() if 'lora_B' in n)", "tensor(0., device='cuda:0')"], Category.CODE_BUG),
    ("adapter", ["Loading adapter from out/", "lora_B abs sum = 0.0"], Category.CHECKPOINT),
    ("gradients", ["parameters with grad: 0/290"], Category.CODE_BUG),
    ("update", ["param checksum before 18.31 after 18.31 max |delta| = 0.0"], Category.CODE_BUG),
    ("weights_all_zero", ["successfully loaded checkpoint", "non-zero tensors: 0 / 388"], Category.CHECKPOINT),
    ("samples", ["  Num examples = 0"], Category.DATA),
    ("samples", ["Dataset({ features: ['text'], num_rows: 0 })"], Category.DATA),
    ("samples", ["len(train_loader) = 0"], Category.DATA),
    ("samples", ["0 / 128 samples kept after filtering"], Category.DATA),
    ("optimizer_members", ["[optimizer] 0 param groups"], Category.CODE_BUG),
    ("gradients", ["after backward: grad is None for 290/290 parameters"], Category.CODE_BUG),
    ("update", ["after the step: updated params 0/291"], Category.CODE_BUG),
    ("label_tokens", ["rank 1: n_tokens 64 n_labels(!=-100) 12 loss 1.2", "rank 2: n_tokens 64 n_labels(!=-100) 0 loss nan"], Category.DATA),
    ("label_tokens", ["batch 812: supervised tokens: 0"], Category.DATA),
    ("samples", ["val: 5000 images, 0 annotations found, mAP 0.000"], Category.DATA),
]  # fmt: skip
QUIET = [
    ["rank 1: n_tokens 64 n_labels(!=-100) 12 loss 1.2"],
    ["config num_labels=0 problem_type=regression"],
    ["trainable params: 11,272,192 || all params: 1,247,086,592 || trainable%: 0.9039", *STEPS],
    ["reference model: trainable params: 0", *STEPS],
    ["non-trainable params: 0", *STEPS],
    ["trainable params: 0", "trainable params: 4,194,304", *STEPS],
    ["loaded 318/318 keys, 0 missing keys, 0 unexpected keys"],
    ["Resuming from checkpoint", "optimizer state entries: 412"],
    ["Loading checkpoint shards:   0%|          | 0/2 [00:00<?, ?it/s]"],
    ["Generating train split: 0 examples [00:00, ? examples/s]"],
    ["consumed samples: 0 | dataset split train"],
    ["dropped 0 samples of the dataset"],
    ["lora_B initialised to 0"],
    ["weights after the step: max diff between ranks = 0.0"],
    ["INFO step 1101: fraction of parameters changed since step 0: 0.031"],
    ["    if len(optimizer_state['found_inf']) == 0:"],
    ["parameters with grad: 290/290"],
    ["  Num examples = 52,002"],
    ["grad is None for 12/290 parameters"],
    ["Dataset({ features: ['text'], num_rows: 512 })"],
    ["train loader length: 40", "dataloader workers: 0"],
    ["dataloader_num_workers: 0, dataloader prefetch: 0"],
    ["resume: none", "setup: SGD, 0 momentum buffers"],
]


@each_row(("what", "lines", "category"), TOLD)
def test_zero_is_told(what: str, lines: list[str], category: Category) -> None:
    found = list(find_in_lines(list(enumerate(lines, 1)), "log"))
    assert [f.kind for f in found] == [f"zero.{what}"]
    assert (found[0].level, found[0].category) == (Level.CAUSE, category)
    assert found[0].evidence[0].text in [line.strip() for line in lines]


@each_row("lines", QUIET)
def test_zero_as_it_should_be(lines: list[str]) -> None:
    found = find_in_lines(list(enumerate(lines, 1)), "log")
    assert [f for f in found if f.level is Level.CAUSE] == []


def test_one_rank_has_none() -> None:
    lines = [f"[rank{r}] dataset: {0 if r == 2 else 500} samples found" for r in range(4)]
    (found,) = find_in_lines(list(enumerate(lines, 1)), "log")
    assert found.rank == 2


def test_schedule_that_starts_over_is_named() -> None:
    lines = ["step 900 lr 1.0e-03", "resume: last.pt", "0 momentum buffers", "step 901 lr 1.0e-06"]
    (found,) = find_in_lines(list(enumerate(lines, 1)), "log")
    assert "1e-06" in found.title
    assert "scheduler starts over" in found.title


def test_empty_tensors_of_a_sharded_save() -> None:
    lines = [
        "zero_config: stage=3",
        ">>> [tuple(v.shape) for v in sd.values()]",
        "[(0,), (0,), (0,)]",
    ]
    (found,) = find_in_lines(list(enumerate(lines, 1)), "log")
    assert found.kind == "zero.empty_tensors"
    assert "ZeRO-3" in found.title


@each_row(
    "line",
    [
        "size mismatch for w: copying a param with shape torch.Size([0]) from checkpoint",
        "[(0,), (4096, 16)]",
        "f(0, 1)",
    ],
)
def test_shapes_that_are_no_empty_save(line: str) -> None:
    assert list(find_in_lines([(1, line)], "log")) == []
