import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.growth import grow_cpu
from tests.rows import each_row

from firstfault_tools.errors import UnreadableArtefact
from firstfault_tools.memory.oom_books import Bucket, close_books
from firstfault_tools.memory.oom_calculator import run_oom
from firstfault_tools.memory.oom_message import find_messages, read_message
from firstfault_tools.memory.setup import Attention, Framework, TrainingSetup
from firstfault_tools.memory.sizes import GIB
from firstfault_tools.memory.tensor_match import match_tensor

MIB = 1 << 20
HEAD_2 = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate "
MESSAGES = {
    "torch 1.2": (
        "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 10.92 GiB total "
        "capacity; 9.79 GiB already allocated; 4.94 MiB free; 23.61 MiB cached)",
        {"tried": 20 * MIB, "gpu": 0, "allocated": int(9.79 * GIB), "form": "1.x"},
    ),
    "torch 1.10": (
        "RuntimeError: CUDA out of memory. Tried to allocate 376.00 MiB (GPU 3; 3.95 GiB total "
        "capacity; 1.72 GiB already allocated; 354.88 MiB free; 2.46 GiB reserved in total by "
        "PyTorch) If reserved memory is >> allocated memory try setting max_split_size_mb to avoid "
        "fragmentation.",
        {"gpu": 3, "reserved": int(2.46 * GIB), "reserved_unallocated": int(2.46 * GIB)
         - int(1.72 * GIB), "free": int(354.88 * MIB)},
    ),
    "torch 1.x with a limit": (
        "CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 79.15 GiB total capacity; 38.00 GiB "
        "already allocated; 40.00 GiB free; 39.58 GiB allowed; 38.50 GiB reserved in total by PyTorch)",
        {"limit": int(39.58 * GIB), "total": int(79.15 * GIB)},
    ),
    "torch 2.0 (capacty)": (
        "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.96 GiB. GPU 2 has a "
        "total capacty of 79.15 GiB of which 1.21 GiB is free. Including non-PyTorch memory, this "
        "process has 77.93 GiB memory in use. Of the allocated memory 74.06 GiB is allocated by "
        "PyTorch, and 2.60 GiB is reserved by PyTorch but unallocated.",
        {"gpu": 2, "total": int(79.15 * GIB), "process": int(77.93 * GIB), "form": "2.x"},
    ),
    "torch 2.3 with private pools": (
        HEAD_2 + "14.06 GiB. GPU 1 has a total capacity of 139.80 GiB of which 3.27 GiB is free. "
        "Including non-PyTorch memory, this process has 136.53 GiB memory in use. Of the allocated "
        "memory 134.52 GiB is allocated by PyTorch, with 2.31 GiB allocated in private pools (e.g., "
        "CUDA Graphs), and 465.05 MiB is reserved by PyTorch but unallocated.",
        {"private_pools": int(2.31 * GIB), "allocated": int(134.52 * GIB)},
    ),
    "torch 2.x with another process": (
        HEAD_2 + "576.00 MiB. GPU 0 has a total capacity of 31.36 GiB of which 370.69 MiB is free. "
        "Process 16335 has 25.34 GiB memory in use. Including non-PyTorch memory, this process has "
        "5.55 GiB memory in use. Of the allocated memory 4.89 GiB is allocated by PyTorch, and "
        "77.08 MiB is reserved by PyTorch but unallocated.",
        {"process": int(5.55 * GIB), "free": int(370.69 * MIB)},
    ),
    "in a container, own process not told apart": (
        HEAD_2 + "1.25 GiB. GPU 1 has a total capacity of 93.02 GiB of which 1.18 GiB is free. "
        "Process 2752205 has 91.82 GiB memory in use. Of the allocated memory 90.63 GiB is allocated "
        "by PyTorch, and 120.54 MiB is reserved by PyTorch but unallocated.",
        {"process": int(91.82 * GIB), "others": ()},
    ),
    "no process information, nothing free": (
        HEAD_2 + "20.00 MiB. GPU 0 has a total capacity of 8.00 GiB of which 0 bytes is free. Of the "
        "allocated memory 14.51 GiB is allocated by PyTorch, and 15.90 MiB is reserved by PyTorch but "
        "unallocated.",
        {"free": 0, "process": None},
    ),
    "ROCm": (
        "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 3.00 GiB. GPU 0 has a total "
        "capacity of 191.98 GiB of which 1.00 GiB is free. Of the allocated memory 180.00 GiB is "
        "allocated by PyTorch, and 9.00 GiB is reserved by PyTorch but unallocated.",
        {"tried": 3 * GIB, "total": int(191.98 * GIB)},
    ),
    "bare": (
        "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 8.5 GB",
        {"tried": int(8.5 * GIB), "total": None, "form": "bare"},
    ),
}  # fmt: skip


@each_row("name", MESSAGES)
def test_every_wording(name):
    text, expected = MESSAGES[name]
    found = read_message(f"[rank3]: {text}\nTraceback")
    for field, value in expected.items():
        assert getattr(found, field) == value, field


def test_wrapped_lines_and_several_messages():
    text = MESSAGES["torch 2.0 (capacty)"][0]
    wrapped = text.replace(" of which ", "\n of which ")
    found = find_messages(wrapped + "\n" + MESSAGES["torch 1.10"][0])
    assert [message.gpu for message in found] == [2, 3]
    assert found[0].free == int(1.21 * GIB)


def test_a_message_at_the_end_of_a_long_log_is_found_fast():
    def find(count):
        noise = "iteration 10/100 | loss 2.1 | Tried to allocate nothing\n" * count
        return lambda: find_messages(noise + MESSAGES["torch 1.10"][0])

    (found,) = find(400_000)()
    assert found.gpu == 3
    assert grow_cpu(find, 20_000) < 9


def test_absurd_process_size_is_dropped():
    text = MESSAGES["torch 2.x with another process"][0].replace("25.34 GiB", "17179869184.00 GiB")
    assert read_message(text).others == ()


@each_row("text", ["", "out of memory", "CUDA error: out of memory"])
def test_no_message(text):
    with pytest.raises(UnreadableArtefact):
        read_message(text)


@given(st.text(max_size=300))
def test_any_tail_is_survived(tail):
    find_messages("CUDA out of memory. Tried to allocate 2.00 GiB" + tail)


@each_row(
    ("name", "bucket"),
    [
        ("torch 2.3 with private pools", Bucket.ALLOCATED),
        ("torch 2.0 (capacty)", Bucket.FRAGMENTATION),
        ("torch 1.10", Bucket.FRAGMENTATION),
        ("torch 2.x with another process", Bucket.OTHER_PROCESSES),
        ("in a container, own process not told apart", Bucket.ALLOCATED),
        ("torch 1.x with a limit", Bucket.LIMIT),
        ("ROCm", Bucket.FRAGMENTATION),
        ("bare", Bucket.UNKNOWN),
    ],
)
def test_bucket(name, bucket):
    assert close_books(read_message(MESSAGES[name][0])).bucket is bucket


def test_request_larger_than_the_card():
    text = HEAD_2 + (
        "130206.04 GiB. GPU 0 has a total capacity of 23.56 GiB of which 16.57 GiB is free. "
        "Including non-PyTorch memory, this process has 6.97 GiB memory in use. Of the allocated "
        "memory 5.45 GiB is allocated by PyTorch, and 1.17 GiB is reserved by PyTorch but unallocated."
    )
    assert close_books(read_message(text)).bucket is Bucket.REQUEST


def test_memory_outside_pytorch():
    text = HEAD_2 + (
        "1.00 GiB. GPU 0 has a total capacity of 94.00 GiB of which 0.50 GiB is free. Including "
        "non-PyTorch memory, this process has 93.40 GiB memory in use. Of the allocated memory 78.00 "
        "GiB is allocated by PyTorch, and 0.40 GiB is reserved by PyTorch but unallocated."
    )
    books = close_books(read_message(text))
    assert books.bucket is Bucket.NON_PYTORCH
    assert books.non_pytorch == pytest.approx(15.0 * GIB, rel=0.01)


@each_row(
    "name", ["torch 2.3 with private pools", "torch 2.0 (capacty)", "torch 2.x with another process",
             "torch 1.10"],
)  # fmt: skip
def test_books_close(name):
    books = close_books(read_message(MESSAGES[name][0]))
    parts = (books.free, books.allocated, books.fragmentation, books.non_pytorch, books.others or 0)
    assert sum(parts) + books.unexplained == books.capacity
    assert abs(books.unexplained) < 0.2 * GIB


def shapes():
    from firstfault_tools.memory.configuration import build_run
    from firstfault_tools.memory.models import find_model

    return build_run(find_model("llama-3-8b")).shape


@each_row(
    ("tried", "words", "setup"),
    [
        ("3.91 GiB", "fp32 logits", {"sequence": 8192}),
        ("1.96 GiB", "logits in half precision", {"sequence": 8192}),
        ("4.00 GiB", "attention scores in half", {"sequence": 8192, "attention": Attention.EAGER}),
        ("224.00 MiB", "MLP intermediate", {"sequence": 8192}),
        ("1002.00 MiB", "embedding or output matrix", {"sequence": 4000}),
        ("14.96 GiB", "all parameters of the rank", {"sequence": 4096}),
    ],
)
def test_request_names_its_tensor(tried, words, setup):
    text = f"CUDA out of memory. Tried to allocate {tried}"
    message = read_message(text)
    found = match_tensor(message.tried, shapes(), TrainingSetup(**setup), message.tried_step)
    assert found, tried
    assert any(words in match.name for match in found[:3]), [match.name for match in found]
    assert found[0].exact


def test_published_hand_solutions():
    """9.27 GiB was 4 x 4096 x 151936 x 4 B, solved by hand in a public thread."""
    from dataclasses import replace

    shape = replace(shapes(), vocab=151936)
    setup = TrainingSetup(sequence=4096, micro_batch=4)
    (best, *_) = match_tensor(int(9.27 * GIB), shape, setup, GIB // 100)
    assert best.name.startswith("fp32 logits")
    assert best.bytes == 4 * 4096 * 151936 * 4


@each_row("tried", [2 * MIB, 20 * MIB])
def test_pool_segments_name_no_tensor(tried):
    assert match_tensor(tried, shapes(), TrainingSetup(sequence=8192)) == ()


DUMP = """
[rank0]: ------------------------ arguments ------------------------
[rank0]:   bf16 ............................................ True
[rank0]:   ffn_hidden_size ................................. 14336
[rank0]:   group_query_attention ........................... True
[rank0]:   hidden_dropout .................................. 0.0
[rank0]:   hidden_size ..................................... 4096
[rank0]:   micro_batch_size ................................ 1
[rank0]:   normalization ................................... RMSNorm
[rank0]:   num_attention_heads ............................. 32
[rank0]:   num_layers ...................................... 32
[rank0]:   num_query_groups ................................ 8
[rank0]:   padded_vocab_size ............................... 128256
[rank0]:   position_embedding_type ......................... rope
[rank0]:   seq_length ...................................... 8192
[rank0]:   swiglu .......................................... True
[rank0]:   untie_embeddings_and_output_weights ............. True
[rank0]:   add_bias_linear ................................. False
[rank0]:   use_distributed_optimizer ....................... True
[rank0]:   world_size ...................................... 8
[rank0]: -------------------- end of arguments ---------------------
"""


def test_the_log_itself_is_enough():
    text = DUMP + HEAD_2 + (
        "3.91 GiB. GPU 1 has a total capacity of 79.11 GiB of which 1.02 GiB is free. Including "
        "non-PyTorch memory, this process has 78.08 GiB memory in use. Of the allocated memory 75.10 "
        "GiB is allocated by PyTorch, and 0.60 GiB is reserved by PyTorch but unallocated."
    )  # fmt: skip
    result = run_oom(text)
    assert result["books"]["bucket"] == "allocated"
    assert result["tensor"][0]["name"].startswith("fp32 logits")
    assert result["estimate"]["parameters"] == 8030261248
    assert result["estimate"]["fit"] == "does not fit"
    assert result["estimate"]["changes"][0]["fits"]
    assert Framework.MEGATRON == "megatron"


def test_books_stand_without_a_configuration():
    result = run_oom(MESSAGES["torch 2.0 (capacty)"][0])
    assert result["estimate"] is None
    assert result["books"]["bucket"] == "fragmentation"


def test_a_bad_configuration_is_told_not_raised():
    result = run_oom(MESSAGES["torch 1.10"][0], configuration="{]", configuration_name="c.json")
    assert "c.json" in result["configuration_problem"]
