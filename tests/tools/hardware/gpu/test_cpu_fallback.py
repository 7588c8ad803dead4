"""Does a log say that the work runs on the CPU, why, and whether a GPU was there?"""

from __future__ import annotations

from tests.rows import each_row

from firstfault_tools.findings import Category, Complaint, Level
from firstfault_tools.hardware.excerpt import number_lines
from firstfault_tools.hardware.gpu import cpu_fallback, topology

GPU = "NVIDIA A100-SXM4-80GB, 0 %, 3 MiB"
FALLBACKS = [
    (
        "Could not load dynamic library 'libcudart.so.11.0'; dlerror: libcudart.so.11.0: cannot open shared object file\n"
        "Could not load dynamic library 'libnvinfer.so.7'; dlerror: libnvinfer.so.7: cannot open shared object file\n"
        "Skipping registering GPU devices...",
        ("TensorFlow", "libcudart.so.11.0"),
    ),
    (
        "failed call to cuInit: CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected",
        ("TensorFlow", "CUDA_ERROR_NO_DEVICE"),
    ),
    (
        "Num GPUs Available:  0\n$ echo $CUDA_VISIBLE_DEVICES\n-1",
        ("TensorFlow", "CUDA_VISIBLE_DEVICES hides"),
    ),
    (
        "An NVIDIA GPU may be present on this machine, but a CUDA-enabled jaxlib is not installed. Falling back to cpu.",
        ("JAX", "jaxlib"),
    ),
    (
        "Failed to load library libonnxruntime_providers_cuda.so with error: libcublasLt.so.11: cannot open shared object file\n"
        "Failed to create CUDAExecutionProvider.",
        ("ONNX Runtime", "libcublasLt.so.11"),
    ),
    ("GPU available: True (cuda), used: False", ("Lightning", "accelerator='gpu'")),
    ("Using device: cpu\ntorch 2.1.0+cpu", ("runs on the CPU", "CPU-only build")),
]


@each_row(("text", "words"), FALLBACKS, ids=[w[1] for _, w in FALLBACKS])
def test_a_fallback_is_told_with_its_reason(text: str, words: tuple[str, ...]) -> None:
    (found,) = cpu_fallback.find_in_lines(number_lines(f"{text}\n{GPU}"), "log")
    assert all(word in found.title for word in words), found.title
    assert "nvinfer" not in found.title
    assert found.level is Level.FAILURE
    assert found.category is Category.ENVIRONMENT
    assert found.explains(Complaint.SLOW)
    assert all(e.text.strip("'") in text or e.text == GPU for e in found.evidence)


def test_without_a_gpu_in_sight_it_is_a_fact_only() -> None:
    (found,) = cpu_fallback.find_in_lines(number_lines("Using device: cpu"), "log")
    assert found.level is Level.CONTEXT


@each_row(
    "text",
    [
        "GPU available: True (cuda), used: True",
        "offload_optimizer device: cpu",
        "loading with map_location cpu, device: cpu",
        "tf.config.list_physical_devices('GPU') [PhysicalDevice(name='/physical_device:GPU:0')]",
        "torch.cuda.is_available() True",
        "moving the EMA to the cpu before saving",
        "If CUDA is not available, training falls back to the CPU",
    ],
)
def test_other_words_about_the_cpu_are_no_fallback(text: str) -> None:
    assert cpu_fallback.find_in_lines(number_lines(f"{text}\n{GPU}"), "log") == ()


def test_wrong_copies_name_pairs_and_the_control() -> None:
    text = "cuda:0 -> cuda:1 : max abs diff 3.9\ncuda:1 -> cuda:0: False\ncuda:0 -> cpu -> cuda:1 : max abs diff 0.0"
    (found,) = topology.find_in_lines(number_lines(text), "log")
    assert (
        "cuda:0 -> cuda:1, cuda:1 -> cuda:0; the same copy through the CPU is right" in found.title
    )
    assert found.category is Category.ENVIRONMENT


@each_row(
    "text",
    [
        "cuda:0 -> cuda:1 : max abs diff 0.0",
        "cuda:0 -> cuda:1: True",
        "cuda:0 -> cuda:1 12.3 GB/s",
        "0[0] -> 1[1] via P2P/IPC",
        "moved layer 3 from cuda:0 to cuda:1 failed to allocate",
        "Expected all tensors to be on the same device, but found cuda:0 and cuda:1! they differ",
    ],
)
def test_right_copies_and_other_pairs_are_no_fault(text: str) -> None:
    assert topology.find_in_lines(number_lines(text), "log") == ()
