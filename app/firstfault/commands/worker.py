"""`firstfault worker`: execute the runs of incidents, in processes that a run may take down."""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from firstfault.workspace import Workspace

_SAMPLE = b"""[rank0]: step 1 loss 2.5
[rank0]: Traceback (most recent call last):
[rank0]:   File "train.py", line 7, in step
[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.
"""


@click.command(
    "worker",
    epilog="Start as many as you like, on any machine that reaches the database and the data folder. "
    "Set FIRSTFAULT_WORKER=external for the page, so that it leaves the runs to these.",
)
@click.option("--threads", type=click.IntRange(1, 64), default=None, help="Runs at the same time.")
@click.option("--once", is_flag=True, help="Execute what waits now, then end.")
@click.option("--until-eof", is_flag=True, help="End when standard input closes.")
def COMMAND(threads: int | None, once: bool, until_eof: bool) -> None:
    """Execute diagnoses and answers of the page's incidents until stopped."""
    from firstfault.crew import Crew
    from firstfault.incidents.record import open_record
    from firstfault.knowledge_base.warm import WarmSearch
    from firstfault.limits import bound_memory
    from firstfault.operations.health import serve_health
    from firstfault.operations.logs import set_up_logs
    from firstfault.settings import Settings
    from firstfault.worker import Worker, choose_answerer
    from firstfault.workspace import Workspace

    settings = Settings()  # type: ignore[call-arg]
    set_up_logs(settings.log_format)
    record = open_record(settings)
    stop, wake = threading.Event(), threading.Event()

    def ask_to_stop(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, ask_to_stop)
    signal.signal(signal.SIGINT, ask_to_stop)
    if once or until_eof:
        if until_eof:
            bound_memory(settings.run_memory_mib)
            threading.Thread(target=_wait_for_eof, args=(stop, wake), daemon=True).start()
        search = WarmSearch()
        worker = Worker(record, Workspace(), choose_answerer(record, search), search=search)
        if once:
            while worker.run_once():
                pass
            return
        if not worker.run_once():
            _warm_up(worker.workspace)
            search.warm()
        # in the main thread, which alone can be ended when a run costs too much
        worker.work(stop, wake)
        sys.exit(0)
    if settings.health_port:
        serve_health(record, settings.address, settings.health_port)
    crew = Crew(settings)
    crew.start(threads or settings.worker_threads)
    click.echo(f"working on {record.database.engine.url.render_as_string()}", err=True)
    while not stop.wait(0.5):
        pass
    crew.stop()
    sys.exit(0)


def _warm_up(workspace: Workspace) -> None:
    """Load what the first run would have to load."""
    from tempfile import TemporaryDirectory

    from firstfault.conversation.rules import search_lexically

    before = workspace.spool
    with TemporaryDirectory() as folder:
        workspace.spool = Path(folder)
        workspace.diagnose_text("warm.log", _SAMPLE, "why did it stop?")
    workspace.spool = before
    search_lexically("warm", 1)


def _wait_for_eof(stop: threading.Event, wake: threading.Event) -> None:
    """A byte: there may be a run. The end: the parent has ended, orderly or not."""
    while sys.stdin.buffer.read(1):
        wake.set()
    stop.set()
    wake.set()
