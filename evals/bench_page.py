"""How long does a page show nothing, and how long do 20 people who open one incident wait? Loopback only.

    python -m evals.bench_page [--viewers 1,20] [--rounds 5] [--write]

An incident is diagnosed once. A viewer is a session of its own over the page's own wire: the clock runs from
the connection to the message that carries the verdict card, and to the end of the run with all figures. First
paint is measured in Chromium, from the navigation to the card being visible, one visit at a time.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from evals.bench_load import RESULTS, quantile
from evals.cases import find_case
from evals.running_page import CHROMIUM, free_port, run_page

from firstfault.incidents.events import EventKind
from firstfault.service import NewIncident, Upload, open_service
from firstfault.settings import Settings

CASE = "public-comm-27-per-rank-continue-skips-backward"
CARD = 'aria-label="Verdict"'
PATIENCE = 180.0
HEAD = (
    "| viewers at once | p50 card s | p95 card s | p50 whole page s | p95 whole page s | load before | after |\n"
    "| ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
)


@dataclass(frozen=True, slots=True)
class Seen:
    """Seconds from the connection to the card, and to the end of the run."""

    card: float
    whole: float


def make_incident(folder: Path) -> str:
    """Id of one diagnosed incident in a data folder."""
    log = find_case(CASE) / "log.txt"
    with open_service(Settings(data=folder)) as service:
        identity = service.start(NewIncident((Upload("log.txt", log.read_bytes()),), ""))
        for event in service.follow(identity, timeout=PATIENCE):
            if event.kind is EventKind.VERDICT:
                break
        for _ in range(100):
            if service.incident(identity).state.is_final:
                break
            time.sleep(0.1)
    return identity


def view(address: str, identity: str) -> Seen:
    """Open a session at the incident and wait for the end of its first run."""
    from streamlit.proto.BackMsg_pb2 import BackMsg
    from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
    from websockets.sync.client import connect

    begin, card = time.perf_counter(), 0.0
    url = address.replace("http://", "ws://") + "/_stcore/stream"
    with connect(
        url, subprotocols=["streamlit"], proxy=None, max_size=None, open_timeout=PATIENCE
    ) as wire:  # type: ignore[list-item]
        back = BackMsg()
        back.rerun_script.query_string = f"incident={identity}"
        wire.send(back.SerializeToString())
        while True:
            message = ForwardMsg.FromString(bytes(wire.recv(timeout=PATIENCE)))  # type: ignore[arg-type]
            if not card and CARD in message.delta.new_element.html.body:
                card = time.perf_counter() - begin
            if message.WhichOneof("type") == "script_finished":
                if not card:
                    raise RuntimeError("the page was drawn without a card")
                return Seen(card, time.perf_counter() - begin)


def view_at_once(address: str, identity: str, count: int) -> list[Seen]:
    """As many sessions at the same moment; raises RuntimeError where one saw no card."""
    gate = threading.Barrier(count)
    seen: list[Seen] = []

    def visit() -> None:
        gate.wait()
        seen.append(view(address, identity))

    visitors = [threading.Thread(target=visit) for _ in range(count)]
    for visitor in visitors:
        visitor.start()
    for visitor in visitors:
        visitor.join()
    if len(seen) < count:
        raise RuntimeError(f"{count - len(seen)} of {count} saw no verdict")
    return seen


def paint(address: str, identity: str, visits: int) -> list[float]:
    """Seconds from the navigation to the visible card; empty where there is no Chromium."""
    if not CHROMIUM.is_file():
        return []
    from playwright.sync_api import sync_playwright

    out = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox", "--disable-gpu"])  # fmt: skip
        for _ in range(visits):
            page = browser.new_page()
            begin = time.perf_counter()
            page.goto(f"{address}/?incident={identity}")
            page.locator(".ff-verdict").wait_for(timeout=1000 * PATIENCE)
            out.append(time.perf_counter() - begin)
            page.close()
        browser.close()
    return out


def write_row(count: int, seen: Sequence[Seen], before: float) -> str:
    """One row of the table."""
    card, whole = [s.card for s in seen], [s.whole for s in seen]
    return (
        f"| {count} | {statistics.median(card):.2f} | {quantile(card, 0.95):.2f} | {statistics.median(whole):.2f} "
        f"| {quantile(whole, 0.95):.2f} | {before:.1f} | {os.getloadavg()[0]:.1f} |"
    )


def main() -> None:
    """Parse arguments, measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--viewers", default="1,20")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    machine = (
        f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, Python "
        f"{platform.python_version()}; load average at the start {os.getloadavg()[0]:.1f}"
    )
    rows = []
    with tempfile.TemporaryDirectory(prefix="viewers-") as name:
        folder = Path(name)
        identity = make_incident(folder)
        with run_page(folder, free_port()) as address:
            view(address, identity)
            for count in (min(100, int(n)) for n in arguments.viewers.split(",")):
                before = os.getloadavg()[0]
                seen = [s for _ in range(arguments.rounds) for s in view_at_once(address, identity, count)]  # fmt: skip
                rows.append(write_row(count, seen, before))
            painted = paint(address, identity, 2 * arguments.rounds)
    told = "First paint in Chromium: not measured, it is not installed."
    if painted:
        told = (
            f"First paint of the card in Chromium, {len(painted)} visits one at a time: median "
            f"{statistics.median(painted):.2f} s, p95 {quantile(painted, 0.95):.2f} s."
        )
    text = "\n".join([machine, "", f"{arguments.rounds} rounds.", "", HEAD, *rows, "", told])
    print(text)
    if arguments.write:
        day = datetime.now(UTC).date()
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / f"page-{day}.md").write_text(f"# One incident, many viewers ({day})\n\n{text}\n", encoding="utf-8")  # fmt: skip


if __name__ == "__main__":
    main()
