"""Output of everyday tools is known for what it is, a log that holds a row of it is not."""

from __future__ import annotations

from tests.rows import each_row

from firstfault_tools.hardware.host.listings import READER, SIGNS
from firstfault_tools.log.kept import fold_lines
from firstfault_tools.registry import ReaderSigns

DF = "Filesystem      Size  Used Avail Use% Mounted on\n/dev/md0         14T  8.1T  5.7T  59% /scratch\n"
PS = "  PID USER      PR  NI    VIRT    RES    SHR S  %CPU  %MEM     TIME+ COMMAND\n  415 ml        20   0   98.3g  11.0g   1.2g R  99.1   1.1 330:10.11 python3\n"
STATUS = (
    "Name:\tpython3\nPid:\t415\nVmRSS:\t 986709112 kB\nRssAnon:\t 985661440 kB\nThreads:\t211\n"
)


@each_row("text", [DF, PS, STATUS])
def test_listings_are_known(text: str) -> None:
    head = text.encode()
    assert ReaderSigns("x", SIGNS).may_know("x.txt", head, b"\n".join(fold_lines(head)))
    assert READER.recognise("x.txt", head)


@each_row("sign", ["v1.28 of", "one\ntwo", "re:(?m)^x\\d", "name:dump"])
def test_signs_are_seen_in_folded_lines(sign: str) -> None:
    """What differs in digits alone is no sign; one over two lines is looked for in the text."""
    for head, known in ((b"a v1.28 of\none\ntwo\nx7", True), (b"a v1.29 of\none two ax7", False)):
        shapes = b"\n".join(fold_lines(head))
        name = "dump.txt" if known else "log.txt"
        assert ReaderSigns("x", (sign,)).may_know(name, head, shapes) is known


def test_a_log_is_none() -> None:
    steps = "".join(f"step {n} loss 2.{n}\n" for n in range(40))
    assert not READER.recognise("x.txt", (steps + DF).encode())
    assert not READER.recognise("x.txt", b"")
