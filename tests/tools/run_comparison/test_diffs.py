"""Which lines does a diff take away, and which does it add?"""

from __future__ import annotations

from tests.rows import each_row

from firstfault_tools.run_comparison.comparison import compare_diff
from firstfault_tools.run_comparison.diffs import read_diff
from firstfault_tools.run_comparison.effects import Effect

NORMAL = "$ diff a.txt b.txt\n31c31\n< deepspeed==0.17.2\n---\n> deepspeed==0.18.3\n"
UNIFIED = "--- run.sh\n+++ run.sh\n@@ -3,2 +3,2 @@\n torchrun train.py\n-export NCCL_P2P_DISABLE=0\n+export NCCL_P2P_DISABLE=1\n"


@each_row(
    ("text", "sides"),
    [
        (NORMAL, ("deepspeed==0.17.2", "deepspeed==0.18.3")),
        (UNIFIED, ("export NCCL_P2P_DISABLE=0", "export NCCL_P2P_DISABLE=1")),
        ("- a list\n- of points\n", None),
        ("step 1 loss 2.0\n<unk> in the text\n", None),
    ],
)
def test_sides(text: str, sides: tuple[str, str] | None) -> None:
    assert read_diff(text) == sides


def test_what_can_have_the_effect_comes_first() -> None:
    text = "1c1\n< certifi==1.0\n---\n> certifi==1.1\n" + NORMAL
    first = compare_diff("freeze.diff", text, [Effect.HANG])[0]
    assert first.tell() == "version deepspeed: 0.17.2 -> 0.18.3"
    assert first.explains == (Effect.HANG,)
