"""Is this process fit to serve? Checked by question, answered on /healthz for a supervisor."""

from __future__ import annotations

import json
import threading
from dataclasses import asdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from sqlalchemy import func, select
from sqlalchemy.exc import SQLAlchemyError

from firstfault.incidents.record import Record
from firstfault.incidents.records import RunState
from firstfault.incidents.schema import runs
from firstfault_tools.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Health:
    """healthy: the database answers. waiting and overdue count runs; age in seconds."""

    healthy: bool
    database: str
    waiting: int = 0
    running: int = 0
    overdue: int = 0
    oldest_waiting_s: float = 0.0


def check_health(record: Record) -> Health:
    """Health of the record; never raises for a database that is down."""
    try:
        with record.database.read() as connection:
            now = record.database.now(connection)
            count = select(func.count()).select_from(runs)
            queued, running = RunState.QUEUED.value, RunState.RUNNING.value
            waiting = connection.execute(count.where(runs.c.state == queued)).scalar_one()
            active = connection.execute(count.where(runs.c.state == running)).scalar_one()
            overdue = connection.execute(
                count.where(runs.c.state == running, runs.c.lease_until < now)
            ).scalar_one()
            oldest = connection.execute(
                select(func.min(runs.c.created)).where(runs.c.state == queued)
            ).scalar_one()
    except SQLAlchemyError as error:
        return Health(False, f"does not answer: {type(error).__name__}")
    age = round(max(0.0, now - oldest), 1) if oldest is not None else 0.0
    return Health(True, "ok", waiting, active, overdue, age)


def serve_health(record: Record, address: str, port: int) -> ThreadingHTTPServer:
    """Answer GET /healthz in the background: 200 with the figures, 503 when not healthy."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path.split("?")[0] not in ("/healthz", "/"):
                self.send_error(404)
                return
            health = check_health(record)
            body = json.dumps(asdict(health)).encode()
            self.send_response(200 if health.healthy else 503)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Probes every few seconds are no news."""

    server = ThreadingHTTPServer((address, port), Answer)
    threading.Thread(target=server.serve_forever, name="health", daemon=True).start()
    return server
