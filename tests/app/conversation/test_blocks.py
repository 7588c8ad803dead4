"""Does every command and quotation of an answer stay a block?"""

from __future__ import annotations

from pathlib import Path

from firstfault.conversation import blocks
from firstfault.conversation.blocks import write_block, write_quote


def test_every_line_is_indented_as_its_list_item() -> None:
    assert write_block("a\nb", 2) == "  ```bash\n  a\n  b\n  ```"


def test_a_fence_that_was_read_does_not_end_the_block() -> None:
    assert write_quote("x ``` y") == "```text\nx ` ` ` y\n```"


def test_no_answer_writes_its_fence_by_hand() -> None:
    own = Path(blocks.__file__)
    found = [
        p.name
        for p in own.parent.glob("*.py")
        if p != own and ("```bash" in (text := p.read_text("utf-8")) or "```text" in text)
    ]
    assert not found
