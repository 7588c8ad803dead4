"""Which thread or worker of the same rank does a waiting main thread wait for, and what does that one wait for?"""

from __future__ import annotations

import sys
from collections.abc import Iterable

from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.stacks.dump import ThreadStack
from firstfault_tools.stacks.hang_patterns import Standing, classify

_WORKER = expression(r"^(?:_worker_loop|_process_worker)$")
_WORKER_FILE = expression(r"torch/utils/data/_utils/worker\.py$|concurrent/futures/process\.py$")
_STANDARD = expression(r"/lib/python\d[\d.]{0,6}/(?!site-packages/|dist-packages/)|^<frozen ")


@dataclass(frozen=True, slots=True)
class Helper:
    """A thread that another one waits for."""

    thread: ThreadStack
    standing: Standing

    @property
    def name(self) -> str:
        """Such as `its thread 'Thread-9 (download)'`."""
        kind = "worker process" if is_worker(self.thread) else "thread"
        label = self.thread.pid if is_worker(self.thread) else repr(self.thread.thread)
        return f"its {kind} {label}" if label and label != "''" else f"another {kind} of it"


def is_worker(thread: ThreadStack) -> bool:
    """The main thread of a process that works for a rank: a loader's or a pool's."""
    return any(_WORKER.match(f.function) and _WORKER_FILE.search(f.file) for f in thread.frames)


def is_standard(file: str) -> bool:
    """A module of Python; py-spy prints it from its package on, without the folder that holds it."""
    if _STANDARD.search(file):
        return True
    return file.partition("/")[0].removesuffix(".py") in sys.stdlib_module_names


def find_helper(
    thread: ThreadStack, standing: Standing, threads: Iterable[ThreadStack]
) -> Helper | None:
    """The thread that has to end the wait of another: of its process or a worker of its rank, and in the same code."""
    if not standing.is_owed:
        return None
    found: list[tuple[int, Helper]] = []
    own_process = False
    for other in threads:
        if not is_worker(other):
            own_process = _is_same_process(other, thread)
        elif other.rank not in (None, thread.rank):
            continue
        # workers are dumped behind the process that started them
        if own_process and other is not thread and other.frames:
            helper = Helper(other, classify(other))
            found.append((_weigh(helper, thread, standing), helper))
    weight, best = max(found, key=lambda row: row[0], default=(0, None))
    return best if weight else None


def _is_same_process(other: ThreadStack, thread: ThreadStack) -> bool:
    same = (other.file, other.rank) == (thread.file, thread.rank)
    return same and (other.pid == thread.pid or thread.native)


def _weigh(helper: Helper, thread: ThreadStack, standing: Standing) -> int:
    """How well it explains the wait; 0 where it is another matter, or only waits for work itself."""
    own = helper.standing
    code = _code(helper.thread) & _code(thread)
    about = own.phase is not None and own.phase.id == getattr(standing.phase, "id", None)
    serves = is_worker(helper.thread) or any(
        f.function == "_worker" and f.file.endswith("concurrent/futures/thread.py")
        for f in helper.thread.frames
    )
    if own.pattern is None:
        return 2 if code else 0
    if (
        own.pattern.of_whom
    ):  # it waits as well: both stand in their own code where they wait for each other
        return 1 if code else 0
    if own.by is not None and own.by.of_whom:
        return 0
    return 4 if about or code else 3 if serves else 0


def _code(thread: ThreadStack) -> set[str]:
    """Files of the thread's frames that are no part of Python."""
    return {f.file for f in thread.frames if f.file and not is_standard(f.file)}
