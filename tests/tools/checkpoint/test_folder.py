import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.rows import each_row

from firstfault_tools.checkpoint.folder import Format, State, inspect_folder
from firstfault_tools.checkpoint.folder_calculator import run_folder
from firstfault_tools.checkpoint.listing import Entry, read_listing
from firstfault_tools.errors import InvalidParameter, ToolError, UnreadableArtefact

TRACKER = "latest_checkpointed_iteration.txt"


def legacy(step, tensor, pipeline, size=5_000_000):
    return [
        Entry(f"ck/iter_{step:07d}/mp_rank_{t:02d}_{p:03d}/{name}", size)
        for t in range(tensor)
        for p in range(pipeline)
        for name in ("model_optim_rng.pt", "distrib_optim.pt")
    ]


def shards(folder, ranks, *names):
    return [Entry(f"{folder}/__{r}_{i}.distcp", 1000) for r in range(ranks) for i in range(2)] + [
        Entry(f"{folder}/{name}", 10) for name in names
    ]


def deepspeed(step, data, tensor=1):
    folder = f"run/global_step{step}"
    return [
        Entry(f"{folder}/bf16_zero_pp_rank_{d}_mp_rank_{t:02d}_optim_states.pt", 100)
        for d in range(data)
        for t in range(tensor)
    ] + [Entry(f"{folder}/mp_rank_{t:02d}_model_states.pt", 100) for t in range(tensor)]


def test_whole_legacy_checkpoint_and_its_parallelism():
    folder = inspect_folder([*legacy(100, 4, 2), Entry(f"ck/{TRACKER}", 3)], {TRACKER: "100"})
    (saved,) = folder.checkpoints
    assert saved.format is Format.MEGATRON_LEGACY
    assert saved.state is State.COMPLETE
    assert dict(saved.parallelism) == {"tensor": 4, "pipeline": 2}
    assert folder.tracker.status == "ok"
    assert folder.resume == "ck/iter_0000100"
    assert not folder.problems


def test_missing_rank_folder_is_named():
    entries = [e for e in legacy(100, 2, 2) if "mp_rank_01_000" not in e.path]
    (saved,) = inspect_folder(entries).checkpoints
    assert saved.state is State.INCOMPLETE
    assert any("3 of 4" in problem for problem in saved.problems)


def test_missing_optimizer_file_of_one_rank():
    entries = [e for e in legacy(100, 2, 2) if e.path.count("mp_rank_01_001/distrib_optim") == 0]
    (saved,) = inspect_folder(entries).checkpoints
    assert any("distrib_optim.pt missing in 1" in problem for problem in saved.problems)


@each_row(
    ("content", "status"),
    [
        ("", "empty"),
        ("  \n", "empty"),
        ("20\x00", "garbled"),
        ("iter", "garbled"),
        ("300", "dangling"),
        ("200", "points to incomplete"),
        ("100", "ok"),
    ],
)
def test_tracker(content, status):
    cut_off = legacy(200, 2, 2)[:3]
    entries = [*legacy(100, 2, 2), *cut_off, Entry(f"ck/{TRACKER}", len(content))]
    folder = inspect_folder(entries, {f"ck/{TRACKER}": content})
    assert folder.tracker.status == status
    assert bool(folder.tracker.problem) == (status != "ok")
    assert folder.resume == "ck/iter_0000100"


def test_tracker_behind_the_newest():
    entries = [*legacy(100, 2, 2), *legacy(200, 2, 2), Entry(TRACKER, 3)]
    assert inspect_folder(entries, {TRACKER: "100"}).tracker.status == "behind"


def test_missing_tracker_is_a_problem():
    folder = inspect_folder(legacy(100, 2, 1))
    assert folder.tracker.status == "missing"
    assert folder.problems


def test_empty_file_and_stub_beside_large_siblings():
    entries = legacy(100, 4, 2)
    entries[0] = Entry(entries[0].path, 0)
    entries[2] = Entry(entries[2].path, 40_000)
    (saved,) = inspect_folder(entries).checkpoints
    assert any("is empty" in problem for problem in saved.problems)
    assert any("cut off" in problem for problem in saved.problems)


def test_torch_dist_is_whole_and_reshards_freely():
    entries = shards("ck/iter_0000010", 8, ".metadata", "common.pt", "metadata.json")
    (saved,) = inspect_folder(entries).checkpoints
    assert saved.format is Format.MEGATRON_DIST
    assert saved.state is State.COMPLETE
    assert "any tensor, pipeline or data-parallel size" in saved.resharding


@each_row(
    ("names", "state"),
    [
        ((".metadata.tmp", "common.pt", "metadata.json"), State.INCOMPLETE),
        ((".hidden", "common.pt", "metadata.json"), State.INCOMPLETE),
        (("common.pt", "metadata.json"), State.UNCLEAR),
        ((".metadata", "common.pt"), State.INCOMPLETE),
    ],
)
def test_torch_dist_cut_off(names, state):
    (saved,) = inspect_folder(shards("ck/iter_0000010", 4, *names)).checkpoints
    assert saved.state is state


def test_dcp_of_torchtitan():
    (saved,) = inspect_folder(shards("out/step-500", 4, ".metadata")).checkpoints
    assert (saved.format, saved.state, saved.step) == (Format.DCP, State.COMPLETE, 500)


def test_deepspeed_whole_and_tracker():
    entries = [*deepspeed(40, 4, 2), Entry("run/latest", 13)]
    folder = inspect_folder(entries, {"latest": "global_step40"})
    (saved,) = folder.checkpoints
    assert saved.format is Format.DEEPSPEED
    assert saved.state is State.COMPLETE
    assert dict(saved.parallelism) == {"data": 4, "tensor": 2}
    assert folder.tracker.status == "ok"


def test_deepspeed_missing_partition_is_named():
    entries = [e for e in deepspeed(40, 8) if "rank_3_" not in e.path]
    (saved,) = inspect_folder(entries).checkpoints
    assert any("zero_pp_rank_3_mp_rank_00" in problem for problem in saved.problems)


def test_deepspeed_zero3():
    entries = [
        Entry(f"r/global_step5/zero_pp_rank_{d}_mp_rank_00_{kind}_states.pt", 10)
        for d in range(4)
        for kind in ("model", "optim")
    ]
    (saved,) = inspect_folder(entries).checkpoints
    assert saved.parallelism["zero_stage"] == 3
    assert saved.state is State.COMPLETE


def test_hugging_face_shards():
    names = ["model.safetensors.index.json", "optimizer.pt", "trainer_state.json"]
    names += [f"model-{n:05d}-of-00004.safetensors" for n in (1, 2, 4)]
    (saved,) = inspect_folder([Entry(f"checkpoint-30/{name}", 100) for name in names]).checkpoints
    assert saved.format is Format.HUGGINGFACE
    assert any("00003" in problem for problem in saved.problems)


def test_hugging_face_without_optimizer_is_not_called_broken():
    names = ["model.safetensors", "trainer_state.json", "config.json"]
    (saved,) = inspect_folder([Entry(f"checkpoint-30/{name}", 100) for name in names]).checkpoints
    assert saved.state is State.UNCLEAR
    assert any("fresh optimizer" in question for question in saved.open_questions)


def test_fewer_ranks_than_a_sibling_is_no_proof_of_either():
    entries = [*legacy(100, 4, 1), *legacy(200, 2, 1)]
    newest = inspect_folder(entries).checkpoints[0]
    assert newest.state is State.UNCLEAR
    assert "cut off, or the job was resized" in newest.open_questions[0]


def test_resharding_need_is_told():
    listing = "\n".join(f"{e.size} {e.path}" for e in legacy(100, 4, 2))
    saved = run_folder(listing, {}, tensor=8, pipeline=2)["checkpoints"][0]
    assert saved["must_convert"] is True
    assert saved["differs"] == {"tensor": [4, 8]}
    same = run_folder(listing, {}, tensor=4)["checkpoints"][0]
    assert same["must_convert"] is False


LISTINGS = {
    "ls": "/ck:\ntotal 4\ndrwxr-xr-x 3 root root 4096 Nov 28 00:19 .\n"
    "-rw-r--r-- 1 root root 3 Nov 28 00:19 latest_checkpointed_iteration.txt\n\n"
    "/ck/iter_0000100/mp_rank_00:\ntotal 8\n"
    "-rw-r--r-- 1 root root 42 Nov 28 2025 model_optim_rng.pt\n",
    "find": "3 /ck/latest_checkpointed_iteration.txt\n42 /ck/iter_0000100/mp_rank_00/model_optim_rng.pt",
    "plain": "ck/latest_checkpointed_iteration.txt\nck/iter_0000100/mp_rank_00/model_optim_rng.pt",
    "s3": "2026-01-02 03:04:05          3 ck/latest_checkpointed_iteration.txt\n"
    "2026-01-02 03:04:05         42 ck/iter_0000100/mp_rank_00/model_optim_rng.pt",
    "json": json.dumps(
        ["ck/latest_checkpointed_iteration.txt",
         {"path": "ck/iter_0000100/mp_rank_00/model_optim_rng.pt", "size": 42}]
    ),
}  # fmt: skip


@each_row("form", LISTINGS)
def test_listing_forms(form):
    entries = read_listing(LISTINGS[form])
    assert {entry.path for entry in entries} == {
        "ck/latest_checkpointed_iteration.txt",
        "ck/iter_0000100/mp_rank_00/model_optim_rng.pt",
    }
    (saved,) = inspect_folder(entries).checkpoints
    assert saved.state is State.COMPLETE


@each_row("text", ["", "hello world", "[]", "[1, 2]", "total 0\n"])
def test_no_listing(text):
    with pytest.raises(UnreadableArtefact):
        read_listing(text)


def test_unknown_wanted_axis():
    with pytest.raises(InvalidParameter):
        run_folder("1 a/b.pt", {}, colour=2)


@given(st.text(max_size=400))
def test_any_text_is_read_or_refused(text):
    with contextlib.suppress(ToolError):
        inspect_folder(read_listing(text))


LEGACY = {100: [1000, 1000, 1000, 1000], 200: [1000, 1000, 1000, 1000]}


def _ask(sizes, tracker):
    lines = [
        f"{size * 10**6} ckpt/iter_{step:07d}/mp_rank_{rank:02d}/model_optim_rng.pt"
        for step, found in sizes.items()
        for rank, size in enumerate(found)
    ]
    lines.append("3 ckpt/latest_checkpointed_iteration.txt")
    contents = {} if tracker is None else {"latest_checkpointed_iteration.txt": tracker}
    return run_folder("\n".join(lines), contents)


@each_row(
    ("sizes", "tracker", "said"),
    [
        (LEGACY, "200", "Resume from ckpt/iter_0000200."),
        (LEGACY, None, "Resume from ckpt/iter_0000200, if ckpt/latest_checkpointed_iteration.txt names it"),
        (LEGACY, "100", "A restart as it stands loads an older one: "),
        ({**LEGACY, 200: [1000, 1000, 1000, 100]}, "200", "A restart as it stands fails: "),
        (LEGACY, "300", "A restart as it stands fails: "),
        ({100: [1000, 1000, 1000, 500]}, "100", "ckpt/latest_checkpointed_iteration.txt names iter_0000100, which"),
    ],
)  # fmt: skip
def test_one_sentence_says_what_a_restart_does(sizes, tracker, said):
    result = _ask(sizes, tracker)
    assert result["sentence"].lower().startswith(said.lower())
    if "fails" in said:
        step = result["resume_from"].removeprefix("ckpt/iter_").lstrip("0")
        assert f"write {step} into ckpt/latest_checkpointed_iteration.txt" in result["sentence"]


def test_a_smaller_slice_among_tensor_ranks_was_cut_off():
    result = _ask({100: [1000, 1000, 1000, 500]}, None)
    assert result["resume_from"] is None
    assert (
        "50% of the size of its tensor-parallel siblings" in result["checkpoints"][0]["problems"][0]
    )


def test_a_smaller_pipeline_stage_is_no_cut_off():
    listing = "\n".join(
        f"{size} ckpt/iter_0000100/mp_rank_00_{stage:03d}/model_optim_rng.pt"
        for stage, size in enumerate((10**9, 10**9, 10**9, 7 * 10**8))
    )
    assert run_folder(listing)["checkpoints"][0]["state"] == "complete"


def dcp(step, *, index):
    """One DCP checkpoint of four writers, its index in place, half-named or missing."""
    rows = [(f"step-{step}/__{rank}_0.distcp", 10**9) for rank in range(4)]
    return [*rows, *((f"step-{step}/{name}", 1000) for name in index)]


def weights(step, parts):
    small = ("model.safetensors.index.json", "trainer_state.json", "optimizer.pt")
    rows = [(f"checkpoint-{step}/model-0000{part}-of-00002.safetensors", 10**9) for part in parts]
    return [*rows, *((f"checkpoint-{step}/{name}", 100) for name in small)]


def arrays(folder, names=("_CHECKPOINT_METADATA", "manifest.ocdbt")):
    return [(f"{folder}/{name}", 100) for name in names]


def partitions(step, lacking=()):
    rows = [(f"global_step{step}/mp_rank_00_model_states.pt", 10**9)]
    name = f"global_step{step}/bf16_zero_pp_rank_{{}}_mp_rank_00_optim_states.pt"
    return [*rows, *((name.format(rank), 10**9) for rank in range(4) if rank not in lacking)]


@each_row(
    ("rows", "contents", "resume", "said", "wrong"),
    [
        (dcp(1, index=[".metadata"]) + dcp(2, index=[".metadata"]), {}, "step-2",
         "Resume from step-2.", False),
        (dcp(1, index=[".metadata"]) + dcp(2, index=[]), {}, "step-1",
         "Resume from step-1: the newer step-2 is incomplete (.metadata is missing", True),
        (dcp(2, index=[".metadata.tmp"]), {}, None,
         "No checkpoint here is shown to be complete: step-2: .metadata.tmp was never renamed", True),
        (weights(1, (1, 2)) + weights(2, (1,)), {}, "checkpoint-1",
         "A restart that takes the newest folder fails: checkpoint-2 is incomplete: 1 of 2 weight shards "
         "missing (first: 00002); give resume_from_checkpoint=checkpoint-1", True),
        (arrays("100") + arrays("200.orbax-checkpoint-tmp-7", ("manifest.ocdbt",)), {}, "100",
         "Resume from 100: the newer 200.orbax-checkpoint-tmp-7 is incomplete", True),
        (partitions(1) + partitions(2, lacking=(2,)) + [("latest", 12)], {"latest": "global_step2"},
         "global_step1", "A restart as it stands fails: latest names global_step2, which is incomplete", True),
        (partitions(1) + partitions(2, lacking=(2,)) + [("latest", 12)], {"latest": "global_step1"},
         "global_step1", "Resume from global_step1: the newer global_step2 is incomplete", True),
    ],
)  # fmt: skip
def test_one_thing_is_said_of_every_layout(rows, contents, resume, said, wrong):
    listing = json.dumps([{"path": path, "size": size} for path, size in rows])
    answer = run_folder(listing, contents, hidden=True)
    assert answer["resume_from"] == resume
    assert answer["sentence"].startswith(said)
    assert bool(answer["problems"]) is wrong
