"""`firstfault watch`: follow a growing log and say once what goes wrong."""

from __future__ import annotations

import itertools
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import click

from firstfault.errors import InputUnreadable
from firstfault.plain_text import show_line, show_text
from firstfault_tools.findings import Finding
from firstfault_tools.log.secrets import redact

MAX_LINE = 64 * 1024
POLL = 0.5
CHUNK = 5_000
WEBHOOK_TIMEOUT = 5.0


def finding_object(finding: Finding) -> dict[str, Any]:
    """A finding as a JSON-able mapping, schema firstfault.alert/1; secrets are redacted."""
    return {
        "schema": "firstfault.alert/1",
        "kind": finding.kind,
        "title": redact(finding.title),
        "level": finding.level.value,
        "category": finding.category.value if finding.category else None,
        "confidence": finding.confidence.value,
        "rank": finding.rank,
        "page": finding.page,
        "facts": dict(finding.facts),
        "evidence": [
            {"file": e.file, "line": e.line, "text": redact(e.text)} for e in finding.evidence
        ],
    }


def read_lines(stream: IO[bytes]) -> Iterator[str]:
    """Lines of any bytes, without their ends; of an overlong one the first MAX_LINE bytes."""
    while line := stream.readline(MAX_LINE):
        rest = line
        while rest and not rest.endswith(b"\n"):
            rest = stream.readline(MAX_LINE)
        yield line.rstrip(b"\r\n").decode("utf-8", errors="replace")


def open_log(path: str) -> IO[bytes]:
    """A log file, or standard input for '-'. Raises InputUnreadable."""
    if path == "-":
        return sys.stdin.buffer
    try:
        if os.path.exists(path) and not os.path.isfile(path):
            raise InputUnreadable(f"{path}: not a regular file; name a log file, or pipe it to '-'")
        return open(path, "rb")
    except (OSError, ValueError) as error:
        reason = (isinstance(error, OSError) and error.strerror) or error
        raise InputUnreadable(f"{path}: cannot be read ({reason}); name a log file") from error


def post_alert(url: str, body: dict[str, Any]) -> str | None:
    """Send one alert; the reason where it failed. A dead receiver must not stop the watch."""
    import urllib.error
    import urllib.request

    request = urllib.request.Request(
        url,
        data=json.dumps({"text": body["title"], **body}).encode(),
        headers={"Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=WEBHOOK_TIMEOUT):
            return None
    except (urllib.error.URLError, OSError, ValueError) as error:
        return str(error)


class Follower:
    """Lines of a file that grows, is truncated or replaced. Holds one partial line at most."""

    def __init__(self, path: str, from_start: bool) -> None:
        self.path = path
        self.stream: IO[bytes] | None = None
        self.inode = -1
        self.rest = b""
        self._open(0 if from_start else None)

    def _open(self, position: int | None) -> None:
        try:
            self.stream = open(self.path, "rb")  # noqa: SIM115 (closed on rotation)
        except FileNotFoundError:
            self.stream = None
            return
        self.inode = os.fstat(self.stream.fileno()).st_ino
        self.stream.seek(0, os.SEEK_END if position is None else os.SEEK_SET)
        self.rest = b""

    def _rotated(self) -> bool:
        try:
            now = os.stat(self.path)
        except FileNotFoundError:
            return False  # between rename and re-creation: the old file may still be written to
        if self.stream is None:
            return True
        return now.st_ino != self.inode or now.st_size < self.stream.tell()

    def read(self) -> Iterator[str]:
        """All whole lines that are there now."""
        while True:
            data = self.stream.read(1 << 20) if self.stream is not None else b""
            if not data:
                if not self._rotated():
                    return
                if self.stream is not None:
                    self.stream.close()
                self._open(0)
                if self.stream is None:
                    return
                continue
            *lines, self.rest = (self.rest + data).replace(b"\r\n", b"\n").split(b"\n")
            if len(self.rest) > MAX_LINE:
                self.rest = self.rest[:MAX_LINE]
            for line in lines:
                yield line[:MAX_LINE].decode("utf-8", errors="replace")

    def close(self) -> None:
        """Close the file."""
        if self.stream is not None:
            self.stream.close()


@click.command("watch")
@click.argument("path", metavar="FILE|-")
@click.option(
    "--baseline", type=click.Path(exists=True, dir_okay=False), help="log of a healthy run"
)
@click.option("--webhook", help="http(s) address that gets each alert as JSON")
@click.option("--once", is_flag=True, help="end at the first alert")
@click.option("--from-start/--from-end", default=True, show_default=True, help="where to begin")
@click.option("--stall-after", type=float, help="seconds of silence that count as a stall")
@click.option("--until-idle", type=float, help="end when the file is silent for so many seconds")
@click.option(
    "--metrics-only", is_flag=True, help="judge step lines only, not what else the log says"
)
@click.option("--open-incident", is_flag=True, help="put the log on record at the first fault")
@click.option("--json", "as_json", is_flag=True, help="one JSON object a line")
def watch(
    path: str,
    baseline: str | None,
    webhook: str | None,
    once: bool,
    from_start: bool,
    stall_after: float | None,
    until_idle: float | None,
    metrics_only: bool,
    open_incident: bool,
    as_json: bool,
) -> None:
    """Alert on the first fault of a growing log, and on bad metrics.

    Once per condition; exit code 1 if there was an alert.
    """
    from firstfault.commands.fault_alert import FaultWatch
    from firstfault_tools.metrics.monitor import Monitor, watch_lines
    from firstfault_tools.metrics.sources.steps import parse_steps

    if webhook is not None and not webhook.startswith(("http://", "https://")):
        raise click.UsageError("--webhook: must begin with http:// or https://")
    healthy = None
    if baseline is not None:
        with open_log(baseline) as stream:
            healthy = parse_steps(enumerate(read_lines(stream), 1))
        if not len(healthy):
            raise click.UsageError(f"--baseline: {baseline} holds no step lines")
    if open_incident and path == "-":
        raise click.UsageError("--open-incident: needs a file, not standard input")
    monitor = Monitor("stdin" if path == "-" else path, baseline=healthy, stall_after=stall_after)
    alerts = 0

    faults = None if metrics_only else FaultWatch(None if path == "-" else Path(path))

    def alert(finding: Finding) -> bool:
        return send(finding_object(finding), show_line(_line(finding)))

    def look(lines: Sequence[str]) -> bool:
        """Whether these lines hold the first fault, which is then told."""
        diagnosis = faults.feed(lines) if faults is not None else None
        if faults is None or diagnosis is None:
            return False
        body = faults.describe(diagnosis)
        if open_incident:
            body["incident"] = _open_incident(path)
        return send(body, _say_fault(body))

    def send(body: dict[str, Any], said: str) -> bool:
        click.echo(json.dumps(body) if as_json else show_text(said))
        if webhook is not None:
            failed = post_alert(webhook, body)
            if failed is not None:
                click.echo(f"webhook failed: {failed}", err=True)
        return True

    if path == "-":
        told = {"fault": False}

        def looked(lines: Iterator[str]) -> Iterator[str]:
            while chunk := list(itertools.islice(lines, CHUNK)):
                told["fault"] = look(chunk) or told["fault"]
                yield from chunk

        alerts = watch_lines(monitor, looked(read_lines(sys.stdin.buffer)), alert)
        sys.exit(1 if alerts or told["fault"] else 0)
    open_log(path).close()
    follower = Follower(path, from_start)
    quiet_since = time.monotonic()
    try:
        while True:
            more = follower.read()
            while lines := list(itertools.islice(more, CHUNK)):
                quiet_since = time.monotonic()
                alerts += look(lines)
                if once and alerts:
                    break
                monitor.feed(lines, quiet_since)
                alerts += sum(1 for finding in monitor.check() if alert(finding))
                if once and alerts:
                    break
            now = time.monotonic()
            alerts += sum(1 for finding in monitor.check(now) if alert(finding))
            if (once and alerts) or (until_idle is not None and now - quiet_since >= until_idle):
                break
            time.sleep(min(POLL, until_idle or POLL))
    except KeyboardInterrupt:
        click.echo("stopped", err=True)
    finally:
        follower.close()
    sys.exit(1 if alerts else 0)


def _say_fault(body: dict[str, Any]) -> str:
    """The verdict of an alert in few lines: what and where, how sure, and what to do."""
    place = f"{body['evidence'][0]['file']}:{body['evidence'][0]['line']}" if body["evidence"] else ""  # fmt: skip
    rows = [f"{time.strftime('%Y-%m-%d %H:%M:%S')} fault ({body['confidence']}): {body['title']} [{place}]"]  # fmt: skip
    if body["next"] is not None:
        rows.append(f"  next: {body['next']['what']}")
        rows += [f"    {line}" for line in body["next"]["command"].splitlines()]
    if "incident" in body:
        rows.append(f"  on record as incident {body['incident']}: firstfault chat opens it")
    return "\n".join(rows)


def _open_incident(path: str) -> str:
    """Put the log on record; the id, by which the page shows it."""
    from firstfault.service import NamedPath, NewIncident, open_service

    with open_service(workers=False) as service:
        return service.start(NewIncident((NamedPath(Path(path).resolve()),)))


def _line(finding: Finding) -> str:
    lines = [e for e in finding.evidence if e.line]
    place = f"{lines[0].file}:{','.join(str(e.line) for e in lines[:4])}" if lines else ""
    stamp = time.strftime("%Y-%m-%d %H:%M:%S")
    return f"{stamp} {finding.level.value} {finding.kind}: {redact(finding.title)} [{place}]"


COMMAND = watch
