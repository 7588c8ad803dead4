"""`firstfault worker`: execute the runs of incidents in this process."""

from __future__ import annotations

import signal
import sys
import threading
from types import FrameType

import click


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
    from firstfault.incidents.record import open_record
    from firstfault.operations.health import serve_health
    from firstfault.operations.logs import set_up_logs
    from firstfault.settings import Settings
    from firstfault.worker import Worker, choose_answerer
    from firstfault.workspace import Workspace

    settings = Settings()  # type: ignore[call-arg]
    set_up_logs(settings.log_format)
    record = open_record(settings)
    workspace, answerer = Workspace(), choose_answerer(record)
    if once:
        worker = Worker(record, workspace, answerer)
        while worker.run_once():
            pass
        return
    stop = threading.Event()

    def ask_to_stop(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, ask_to_stop)
    signal.signal(signal.SIGINT, ask_to_stop)
    if until_eof:
        threading.Thread(target=_wait_for_eof, args=(stop,), daemon=True).start()
    if settings.health_port:
        serve_health(record, settings.address, settings.health_port)
    crew = [
        threading.Thread(target=Worker(record, workspace, answerer).work, args=(stop,), daemon=True)
        for _ in range(threads or settings.worker_threads)
    ]
    for member in crew:
        member.start()
    click.echo(f"working on {record.database.engine.url.render_as_string()}", err=True)
    for member in crew:
        while member.is_alive():
            member.join(timeout=0.5)
    sys.exit(0)


def _wait_for_eof(stop: threading.Event) -> None:
    """The parent has ended, orderly or not, when its end of the pipe is closed."""
    while sys.stdin.buffer.read(1):
        pass
    stop.set()
