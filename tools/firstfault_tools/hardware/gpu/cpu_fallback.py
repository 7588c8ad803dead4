"""Does the work run on the CPU although a GPU is there, and which library or setting is the reason?

Frameworks that cannot load CUDA say so once, early, as a warning, and go on without the GPU: the run is
right and a hundred times too slow. The sign (no device registered, an empty list of devices, a provider
that is not there) and its reason (a library that cannot be opened, a build for CPUs, a hidden device)
stand in different lines.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Confidence, Finding, Level
from firstfault_tools.hardware.excerpt import NumberedLine, keep_marked, quote_line

MOST_LINES, WINDOW = 600, 1_000
MOST_LIBRARIES = 4
WEIGHT = 0.95

_SIGNS = (
    ("failed call to cuInit", r"failed call to cuInit", "TensorFlow", "cuInit failed"),
    (
        "GPUs Available",
        r"(?i)\bNum(?:ber of)? GPUs Available:?\s+0\b",
        "TensorFlow",
        "it counts no GPU",
    ),
    ("Skipping registering GPU", r"Skipping registering GPU devices", "TensorFlow", "it skips registering GPU devices"),
    ("GPU will not be used", r"GPU will not be used", "TensorFlow", "it says that the GPU will not be used"),
    ("list_physical_devices", r"list_physical_devices\(['\"]GPU['\"]\).{0,60}?(?:\s|->|=>|:|=)\s*\[\]\s*$", "TensorFlow", "its list of GPUs is empty"),
    ("alling back to ", r"(?:No GPU/TPU found|may be present on this machine).{0,120}[Ff]alling back to (?:cpu|CPU)", "JAX", "it falls back to the CPU"),
    ("CpuDevice(", r"\[(?:CpuDevice\(id=\d+\)(?:, )?)+\]", "JAX", "its devices are CPUs"),
    (
        "CUDAExecutionProvider",
        r"Failed to create CUDAExecutionProvider|Specified provider 'CUDAExecutionProvider' is not in available",
        "ONNX Runtime", "it has no CUDA execution provider",
    ),
    ("used: False", r"GPU available: True.{0,40}, used: False", "the Lightning trainer", "a GPU is available and is not used"),
    ("GPU available: False", r"GPU available: False", "the Lightning trainer", "it finds no GPU"),
    ("cuda.is_available", r"cuda\.is_available\(\).{0,40}?\bFalse\b", "PyTorch", "torch.cuda.is_available() is False"),
    ("UDA is not available", r"CUDA is not available\b", "PyTorch", "it says that CUDA is not available"),
    ("UDA available", r"(?i)^\W{0,3}(?:.{0,40}\s)?(?:is )?CUDA available\s*[:=?]+\s*(?:False|no)\b", "PyTorch", "it says that CUDA is not available"),
    ("n_gpu: 0", r"\bn_gpu: 0\b", "the trainer", "its device is the CPU, n_gpu: 0"),
    (
        "evice: cpu|evice: 'cpu|evice=cpu|evice = cpu|evice cpu|evice: CPU|type='cpu'",
        r"(?i)(?:^|[\]|:>-]\s*|\b(?:using|training|running|compute) (?:on )?(?:the |torch )?)(?:device|accelerator)\s*[:=]?\s*(?:torch\.device\()?['\"]?cpu['\"]?\)?\s*\.?$",
        "the program", "its device is the CPU",
    ),
    (
        "sing cpu|sing CPU|sing the CPU|ing on cpu|ing on CPU|ing on the CPU",
        r"(?i)\b(?:using|training on|running on) (?:the )?cpu\b(?! cores?| threads?| offload)[^\n]{0,40}$",
        "the program", "it says that it uses the CPU",
    ),
    ("offloaded 0/", r"offloaded 0/\d+ layers to GPU", "llama.cpp", "it put no layer on the GPU"),
    ("setting device to CPU", r"No visible GPU is found, setting device to CPU", "XGBoost", "it finds no GPU"),
)  # fmt: skip
"""Plain words (any of them), pattern, who runs on the CPU, and what shows it."""

HIDDEN = "CUDA_VISIBLE_DEVICES hides every GPU from the process"
_REASONS = (
    (
        "CUDA_VISIBLE_DEVICES",
        r"\bCUDA_VISIBLE_DEVICES['\"]?\s*[=:]\s*(?:$|(?:['\"]{2}|['\"]?-1\b['\"]?|NoDevFiles)\s*(?:[;,})]|$|\s+\w))",
        HIDDEN,
    ),
    ("is too old", r"driver on your system is too old(?: \(found version (?P<what>\d+)\))?", "the NVIDIA driver is too old for this CUDA build"),
    ("jaxlib is not installed", r"CUDA-enabled jaxlib is not installed", "the CPU build of jaxlib is installed, not the one with CUDA"),
    ("+cpu", r"\b(?P<what>\d+\.\d+\.\d+(?:\.\w+)?\+cpu)\b", "a CPU-only build is installed ({what})"),
    ("version.cuda", r"version\.cuda\b.{0,60}\bNone\b", "a CPU-only build of PyTorch is installed (torch.version.cuda is None)"),
    ("cpuonly", r"\bcpuonly\b", "a CPU-only build is installed (package cpuonly)"),
    ("without GPU", r"compiled without GPU (?:support|offload)", "the library was compiled without GPU support"),
    ("not compiled with CUDA", r"not (?:compiled|built) with (?:CUDA|GPU)", "the library was built without CUDA"),
    (
        "is not in available",
        r"[Aa]vailable providers: ?['\"\[](?P<what>(?:\w+ExecutionProvider['\", ]*)+)",
        "the package without GPU support is installed (its providers: {what}); the one with CUDA is onnxruntime-gpu",
    ),
    ("cuInit", r"failed call to cuInit: (?:(?:INTERNAL|UNKNOWN ERROR)[^A-Z]{0,20})?(?P<what>CUDA_ERROR_\w+|UNKNOWN ERROR \(\d+\))", "the driver refuses to start (cuInit: {what})"),
    ("kernel driver does not appear", r"kernel driver does not appear to be running", "the NVIDIA kernel driver is not running on this host or not visible in the container"),
    ("use_cpu", r"\b(?:use_cpu|no_cuda)['\"]?\s*[=:]\s*[Tt]rue", "the configuration asks for the CPU"),
    ("accelerator", r"\baccelerator['\"]?\s*[=:]\s*['\"]?cpu\b", "the configuration asks for the CPU (accelerator cpu)"),
    ("used: False", r"GPU available: True.{0,40}, used: False", "the Trainer was not told to use it (accelerator='gpu', devices=...)"),
    ("find cuda drivers", r"Could not find cuda drivers on your machine", "it finds no CUDA driver library (libcuda.so.1)"),
    ("CUDA initialization", r"CUDA initialization: (?P<what>[^.(\n]{8,90})", "CUDA cannot start ({what})"),
)  # fmt: skip

_LIBRARY = expression(
    r"(?:Could not load dynamic library ['\"]?(?P<tf>lib[\w.+-]{1,80})|"
    r"(?<![\w/.])(?P<so>lib(?:cu(?:dart|blas|blasLt|dnn\w*|fft|rand|solver|sparse|da|pti)|nccl|nvrtc)[\w.-]{0,60}\.so[\w.]{0,40}): "
    r"cannot open shared object|Cannot load (?P<jax>cu\w+|libdevice|nccl)\b|"
    r"Could not (?:find|locate|open) (?P<dll>cu(?:dart|blas|dnn|fft)[\w.-]*\.dll))"
)
_NO_MATTER = expression(r"lib(?:nvinfer|cupti)")
"""Libraries of TensorRT and of profiling: training runs on the GPU without them."""

_GPU = expression(
    r"\b(?:NVIDIA|Tesla|GeForce|Quadro)[ -](?:[A-Z]{1,3}\d{1,4}|RTX|GeForce|GTX|TITAN|Tesla|Graphics|GH200|DGX)|"
    r"\bGPU-[0-9a-f]{8}-|GPU available: True|NVIDIA GPU may be present|^\|\s+(?:N/A|\d+%)\s.{0,60}MiB / +\d+MiB"
)
_GPU_WORDS = ("NVIDIA", "Tesla", "GeForce", "Quadro", "GPU-", "GPU available", "MiB /")
_SIGN_WORDS = tuple(dict.fromkeys(w for words, *_ in _SIGNS for w in words.split("|")))
_WORDS = (
    *_SIGN_WORDS,
    *dict.fromkeys(w for w, *_ in _REASONS),
    *("cannot open shared object", "Could not load dynamic library", "Cannot load cu", ".dll"),
    *_GPU_WORDS,
)
_OTHER_WAY = expression(
    r"(?i)\b(?:if|when|unless|otherwise|in case)\b.{0,60}\b(?:cpu|cuda is not)|offload|pin_memory|map_location|move\w* to (?:the )?cpu|"
    r"GPU available: True.{0,40}used: True|\bgloo\b"
)
"""What is said of the CPU for other reasons: a condition, an offload, where a checkpoint is loaded to."""


@dataclass(frozen=True, slots=True)
class Fallback:
    """Who runs on the CPU, what shows it, why, and whether a GPU was seen."""

    who: str
    sign: str
    reasons: tuple[str, ...]
    places: tuple[NumberedLine, ...]
    gpu: NumberedLine | None


def read_fallback(lines: Sequence[NumberedLine], signs: Sequence[NumberedLine]) -> Fallback | None:
    """The fallback that a log tells of; None where nothing says that the CPU is used.

    signs: the lines that hold a word of a sign. Reasons and GPUs are looked for near the first, and at the end.
    """
    shown = next(_find_signs(signs), None)
    if shown is None:
        return None
    place, who, sign = shown
    at = bisect_left(lines, place[0], key=lambda row: row[0])
    near = [*lines[max(0, at - WINDOW) : at + WINDOW], *lines[max(at + WINDOW, len(lines) - WINDOW) :]]  # fmt: skip
    kept = [row for row in near if any(word in row[1] for word in _WORDS)][:MOST_LINES]
    reasons, places = _find_reasons(kept)
    hidden = _find_hidden(lines, kept)
    if hidden is not None:
        reasons, places = [HIDDEN], [hidden]
    gpu = next(((n, t) for n, t in kept if any(w in t for w in _GPU_WORDS) and _GPU.search(t)), None)  # fmt: skip
    return Fallback(who, sign, tuple(reasons), (place, *places), gpu)


def _find_hidden(
    lines: Sequence[NumberedLine], kept: Sequence[NumberedLine]
) -> NumberedLine | None:
    """An echo of CUDA_VISIBLE_DEVICES whose answer is empty or -1."""
    asks = ("echo $CUDA_VISIBLE_DEVICES", 'echo "$CUDA_VISIBLE_DEVICES"')
    asked = {n: (n, t) for n, t in kept if t.rstrip().endswith(asks)}
    if not asked:
        return None
    for number, text in lines:
        if number - 1 in asked and text.strip() in ("", "-1"):
            return (number, text) if text.strip() else asked[number - 1]
    return None


def _find_signs(kept: Sequence[NumberedLine]) -> Iterator[tuple[NumberedLine, str, str]]:
    for listed, pattern, who, sign in _SIGNS:
        found, words = expression(pattern), listed.split("|")
        for number, text in kept:
            if (
                any(w in text for w in words)
                and found.search(text[:600])
                and not _OTHER_WAY.search(text[:600])
            ):
                yield (number, text), who, sign
                break


def _find_reasons(kept: Sequence[NumberedLine]) -> tuple[list[str], list[NumberedLine]]:
    """What is missing or hides the GPU, in words, with the lines that say so."""
    missing: dict[str, NumberedLine] = {}
    for number, text in kept:
        for found in _LIBRARY.finditer(text[:1000]):
            name = next(g for g in found.groups() if g)
            if not _NO_MATTER.match(name):
                missing.setdefault(name, (number, text))
    reasons: list[str] = []
    if missing:
        names = list(missing)[:MOST_LIBRARIES]
        listed = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
        reasons.append(f"{listed} cannot be loaded (not installed, or not on LD_LIBRARY_PATH)")
        return reasons, list(missing.values())[:MOST_LIBRARIES]
    for word, pattern, words in _REASONS:
        for number, text in kept:
            if word in text and (match := expression(pattern).search(text[:600])) is not None:
                what = (match.groupdict().get("what") or "").strip(" '\",[]")
                return [words.format(what=what)], [(number, text)]
    return reasons, []


def find_in_lines(lines: Sequence[NumberedLine], file: str) -> tuple[Finding, ...]:
    """A fact that explains slowness; a fault where a GPU is seen beside it and a reason is told."""
    signs = keep_marked(lines, _SIGN_WORDS)[:MOST_LINES]
    found = read_fallback(lines, signs) if signs else None
    if found is None:
        return ()
    why = f": {found.reasons[0]}" if found.reasons else ""
    seen = found.gpu is not None
    places = dict.fromkeys([*found.places, *([found.gpu] if found.gpu else [])])
    return (
        Finding(
            kind="hardware.cpu_fallback",
            title=f"{found.who} runs on the CPU, the GPU is not used ({found.sign}){why}",
            level=Level.FAILURE if seen and found.reasons else Level.CONTEXT,
            category=Category.ENVIRONMENT,
            confidence=Confidence.CONFIRMED if found.reasons else Confidence.LIKELY,
            evidence=tuple(quote_line(file, *place) for place in list(places)[:5]),
            facts={
                "explains": {"slow": WEIGHT},
                "survived": False,
                "severity": "warning",
            },
        ),
    )
