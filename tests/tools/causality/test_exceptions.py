"""What is an exception about that no signature knows?"""

from __future__ import annotations

from tests.rows import each_row

from firstfault.workspace import Workspace
from firstfault_tools.causality.exceptions import (
    classify_traceback,
    describe_origin,
    is_echo,
)
from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.findings import Category
from firstfault_tools.log.digest import Line
from firstfault_tools.log.signature import SignatureSet
from firstfault_tools.log.traceback import Frame, Traceback

TRAIN = "/ws/train.py"


def raised(kind: str, message: str, *frames: tuple[str, str]) -> Traceback:
    stack = tuple(Frame(path, 10, name, n) for n, (path, name) in enumerate(frames, 1))
    return Traceback(1, Line("log.txt", 9, f"{kind}: {message}"), kind, message, stack, False)


@each_row(
    ("traceback", "category"),
    [
        (raised("KeyError", "'lr'", (TRAIN, "main")), Category.CODE_BUG),
        (raised("KeyError", "'img'", ("/x/torch/utils/data/_utils/fetch.py", "fetch"), ("/ws/tiles.py", "__getitem__")), Category.DATA),
        (raised("KeyError", "'img'", ("/ws/data.py", "__getitem__")), Category.CODE_BUG),
        (raised("KeyError", "'optimizer'", ("/ws/io.py", "load_checkpoint")), Category.CHECKPOINT),
        (raised("TypeError", "bad argument", ("/ws/io.py", "load_checkpoint")), Category.CODE_BUG),
        (raised("OSError", "[Errno 28] No space left on device", (TRAIN, "main")), Category.ENVIRONMENT),
        (raised("OSError", "[Errno 12] Cannot allocate memory", (TRAIN, "main")), Category.OOM),
        (raised("FileNotFoundError", "[Errno 2] No such file or directory: '/c/part-3.jsonl'", (TRAIN, "main")), Category.DATA),
        (raised("FileNotFoundError", "[Errno 2] No such file or directory: 'conf/a.yaml'", (TRAIN, "main")), Category.ENVIRONMENT),
        (raised("KeyError", "'LOCAL_RANK'", (TRAIN, "main")), Category.SCHEDULER),
        (raised("ValueError", "loss is not finite: nan", (TRAIN, "step")), Category.NUMERICAL),
        (raised("RuntimeError", "Connection closed by peer", (TRAIN, "step")), Category.COMMUNICATION),
        (raised("json.decoder.JSONDecodeError", "Extra data", (TRAIN, "main")), Category.DATA),
        (raised("ImportError", "cannot import name 'x'", (TRAIN, "main")), Category.ENVIRONMENT),
        (raised("pkg.MyError", "odd", (TRAIN, "main")), Category.CODE_BUG),
    ],
)  # fmt: skip
def test_category(traceback: Traceback, category: Category) -> None:
    assert classify_traceback(traceback) is category


def test_none_in_a_worker_is_a_sample() -> None:
    traceback = raised("AttributeError", "'NoneType' object has no attribute 'shape'", (TRAIN, "f"))
    assert classify_traceback(traceback, in_worker=True) is Category.DATA
    assert classify_traceback(traceback) is Category.CODE_BUG


def test_end_of_a_pipe_is_an_echo() -> None:
    pipe = ("/usr/lib/python3.11/multiprocessing/spawn.py", "_main")
    assert is_echo(raised("EOFError", "Ran out of input", pipe))
    assert not is_echo(raised("EOFError", "Ran out of input", ("/ws/cache.py", "load")))


HEADLESS = """\
[rank3]:   File "/ws/train.py", line 88, in main
[rank3]:     batch = collate(rows)
[rank3]:   File "/ws/data/collate.py", line 31, in collate
[rank3]:     assert len(ids) == len(masks)
[rank3]: AssertionError
"""
ANNOUNCED = """\
ERROR:root:More shards are asked for an epoch than the data loader can serve.
Traceback (most recent call last):
  File "/ws/main.py", line 12, in main
    assert shards is not None
AssertionError
"""


@each_row(
    ("text", "category", "words"),
    [
        (HEADLESS, Category.DATA, "assert len(ids) == len(masks)"),
        (ANNOUNCED, Category.DATA, "More shards are asked for an epoch"),
        (ANNOUNCED.replace("ERROR:", "INFO:"), Category.CODE_BUG, "assert shards is not None"),
    ],
)
def test_excerpts_and_bare_assertions(text: str, category: Category, words: str) -> None:
    told = Workspace().diagnose_text("log.txt", text.encode())
    assert told.category == category.value
    assert words in told.root_cause


def test_what_the_program_called_of_a_package_is_told() -> None:
    site = "/venv/lib/python3.12/site-packages"
    own, inner = (TRAIN, "main"), (f"{site}/torch/distributed/checkpoint/planner.py", "plan")
    through = (f"{site}/accelerate/utils/fsdp_utils.py", "load_optimizer")
    wrapped = (f"{site}/accelerate/utils/other.py", "wrapper")
    incident = LogIncident((), SignatureSet(()))
    told = describe_origin(incident, raised("KeyError", "'a'", own, wrapped, through, inner))
    assert told == ", called from main (/ws/train.py:10) through load_optimizer (accelerate)"
    assert describe_origin(incident, raised("KeyError", "'a'", own, inner)).endswith("train.py:10)")
