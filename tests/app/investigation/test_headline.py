"""The verdict's sentence holds what is specific to the incident, once."""

from __future__ import annotations

from tests.rows import each_row

from firstfault.investigation.diagnosis import NextArtefact
from firstfault.investigation.headline import name_cause, name_open, shorten_clause
from firstfault_tools.findings import Category, Evidence, Finding, Level

_DATA = "samples cannot be joined to a batch"
_OOM = "GPU out of memory on rank 3: 1.96 GiB could not be allocated on GPU 1"


def find(
    title: str, line: str = "", level: Level = Level.CAUSE, category: Category = Category.DATA
) -> Finding:
    evidence = (Evidence("log.txt", 1, line),) if line else ()
    return Finding("signature.x", title, level, category, evidence=evidence)


@each_row(
    ("title", "line", "beside", "said"),
    [
        (_DATA, "", [], _DATA),
        (_DATA, "step 3 loss 1.0", [], _DATA),
        (
            _DATA,
            "[rank1]: RuntimeError: Trying to resize storage that is not resizable",
            [],
            f"{_DATA}; RuntimeError: Trying to resize storage that is not resizable",
        ),
        # one sentence of a message that goes on
        (
            _DATA,
            "a.b.DecodeError: image 31 of shard 7 is cut off at byte 12. Set x to go on. See docs.",
            [],
            f"{_DATA}; DecodeError: image 31 of shard 7 is cut off at byte 12",
        ),
        # the title says it already
        (
            _OOM,
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.96 GiB. GPU 1 has",
            [],
            _OOM,
        ),
        # an agreeing cause beside it, not one of another class, not a mere failure
        (
            _DATA,
            "",
            [find("rows of zeros give a zero scale")],
            f"{_DATA}; together with it: rows of zeros give a zero scale",
        ),
        (_DATA, "", [find("the node ran full", category=Category.ENVIRONMENT)], _DATA),
        (_DATA, "", [find("a worker ended", level=Level.FAILURE)], _DATA),
    ],
)
def test_headline(title: str, line: str, beside: list[Finding], said: str) -> None:
    assert name_cause(find(title, line), beside) == said


def test_open_headline_says_what_would_decide_it() -> None:
    wanted = [NextArtefact(what, "why", "command") for what in ("stacks", "the kernel log", "more")]
    assert name_open("Not decided: x.", wanted) == (
        "Not decided: x; what would decide it: stacks; the kernel log"
    )
    assert name_open("Not decided: x", []) == "Not decided: x"


@each_row(
    ("title", "said"),
    [
        # what is quoted in brackets is proof, not the sentence
        (
            "token id out of range: the tokenizer has 128264 tokens (`tokenizer: /models/tok-v3 len=128264`), the embedding "
            "of the model only 128256 (`vocab_size=128256`)",
            "token id out of range: the tokenizer has 128264 tokens, the embedding of the model only 128256",
        ),
        # a list in brackets that is closed goes aside as a whole
        (
            "rank 6 is still matching a regular expression, which holds the interpreter lock (a pattern with nested repetition "
            "backtracks for ever on some texts) at match (re.py:166), called from format_reward (rewards.py:41) and more",
            "rank 6 is still matching a regular expression, which holds the interpreter lock",
        ),
        # one that is not closed is cut at a word
        (
            "the resumed run uses other settings than its checkpoint (learning rate now 0.003, minimum learning rate now 3e-05, "
            "warmup iterations now 2048000, decay style now cosine",
            "the resumed run uses other settings than its checkpoint (learning rate now 0.003, minimum learning rate now 3e-05 …",
        ),
        # between two clauses rather than within one
        (
            "another process (2291874) holds 31.82 GiB of memory on GPU 6, so 1.25 GiB could not be allocated on rank 6 "
            "although this process uses only 46.97 GiB and nothing else was started there before it",
            "another process (2291874) holds 31.82 GiB of memory on GPU 6, so 1.25 GiB could not be allocated on rank 6",
        ),
        (
            "pod sft70b-worker-5: no node could take the pod (FailedScheduling: 0/14 nodes are available: 6 node(s) didn't match Pod's affinity, "
            "8 Insufficient nvidia.com/gpu)",
            "pod sft70b-worker-5: no node could take the pod",
        ),
    ],
)  # fmt: skip
def test_a_long_sentence_is_cut_where_it_can_stand(title: str, said: str) -> None:
    assert shorten_clause(title) == said


@each_row(
    ("title", "said"),
    [
        # what nothing decides is not part of the sentence
        ("the GPU of rank 3 hung and its driver reset it: firmware, the chip, or a kernel that never ends", "the GPU of rank 3 hung and its driver reset it"),
        ("loss is exactly 0.0: all labels are masked or the forward pass has overflowed", "loss is exactly 0.0"),
        # the last colon parts them: what stands before is known
        ("a sensor of the machine is critical: FAN 5 0 RPM: the cooling or the power failed", "a sensor of the machine is critical: FAN 5 0 RPM"),
        ("activation recomputation produced other tensors (different metadata or count)", "activation recomputation produced other tensors"),
        # one thing of two names, and what may happen to it, is no choice
        ("the queue pair was refused: no address in this container or namespace", "the queue pair was refused: no address in this container or namespace"),
        # nor is what a program printed
        ("native code corrupted its memory on rank 4: «double free or corruption»", "native code corrupted its memory on rank 4: «double free or corruption»"),
        ("host name cannot be resolved («Name or service not known»)", "host name cannot be resolved («Name or service not known»)"),
        # or the message of an exception
        ("RuntimeError: File not found or corrupted", "RuntimeError: File not found or corrupted"),
    ],
)  # fmt: skip
def test_what_may_lie_behind_it_stands_behind_what_is_known(title: str, said: str) -> None:
    assert shorten_clause(title) == said
