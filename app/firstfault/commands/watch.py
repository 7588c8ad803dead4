"""`firstfault watch`: follow the growing logs of a job and say once what goes wrong."""

from __future__ import annotations

import itertools
import json
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from firstfault.commands._following import JobLogs, open_log, read_lines
from firstfault.errors import CannotAnalyse, FirstfaultError
from firstfault.plain_text import show_line, show_text
from firstfault_tools.findings import Finding, Verdict
from firstfault_tools.log.secrets import redact

if TYPE_CHECKING:
    from firstfault.commands.fault_alert import FaultWatch
    from firstfault.commands.triage import Job
    from firstfault_tools.metrics.monitor import Monitor
    from firstfault_tools.metrics.series import StepSeries

POLL = 0.5
CHUNK = 5_000
WEBHOOK_TIMEOUT = 5.0
HELP = """Alert on the first fault of growing logs, on bad metrics and on silence.

\b
LOGS are files and folders (all files in them, also those that come later) of one job, one a rank or
one for all; '-' reads standard input. A log is silent when nothing came for longer than its own
rhythm allows: ten usual gaps, and three of the pauses that it made twice.

\b
Examples:
  firstfault watch train.log --webhook https://example.org/hook
  firstfault watch logs/ --open-incident
  firstfault watch logs/ --capture '--slurm 4711'      at the first alert: capture, incident, verdict
  firstfault watch logs/ --capture ''                  the same from this node

Once per condition; exit code 1 if there was an alert.
"""


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


class Watching:
    """One watch: its logs, what was told, and what follows the first alert."""

    def __init__(
        self,
        paths: Sequence[str],
        healthy: StepSeries | None,
        stall_after: float | None,
        metrics_only: bool,
        sink: Sink,
        response: Response | None,
    ) -> None:
        from firstfault.commands.fault_alert import FaultWatch
        from firstfault_tools.triage.silence import Silence

        self.healthy, self.sink, self.response = healthy, sink, response
        self.monitors: dict[str, Monitor] = {}
        self.told: set[tuple[str, int | None]] = set()
        self.silence = Silence(stall_after)
        files = tuple(Path(p) for p in paths if p != "-")
        self.faults: FaultWatch | None = None if metrics_only else FaultWatch(files)
        self.alerts = 0
        self.ended = False

    def take(self, name: str, lines: Sequence[str], now: float) -> None:
        """Judge lines that came to one log."""
        diagnosis = self.faults.feed(lines) if self.faults is not None else None
        if self.faults is not None and diagnosis is not None:
            self._alert(self.faults.describe(diagnosis))
        monitor = self.monitors.get(name) or self._begin(name)
        rows = monitor.feed(lines)
        first = name not in self.silence.logs
        self.silence.hear(name, lines, rows, now)
        if first and rows:
            self.silence.logs[name].rows.learn(monitor.times())
        self._tell(monitor.check())

    def listen(self, now: float) -> None:
        """Judge what did not come."""
        finding = self.silence.judge(now)
        if finding is not None and not self._is_over(finding):
            self._tell([finding])

    def _begin(self, name: str) -> Monitor:
        from firstfault_tools.metrics.monitor import Monitor

        shown = "stdin" if name == "-" else name
        self.monitors[name] = Monitor(shown, baseline=self.healthy, reported=self.told)
        return self.monitors[name]

    def _is_over(self, finding: Finding) -> bool:
        """Silent because the job came to its end: the logs prove it, or it counts as a stall."""
        if self.faults is None or self.faults.found is not None or not self.faults.paths:
            return False
        diagnosis = self.faults.workspace.diagnose_paths(list(self.faults.paths), finding.title)
        self.ended = diagnosis.verdict is Verdict.HEALTHY
        if self.ended:
            click.echo(f"ended: {show_line(redact(diagnosis.root_cause))}", err=True)
        return self.ended

    def _tell(self, findings: Sequence[Finding]) -> None:
        for finding in findings:
            self._alert(finding_object(finding))

    def _alert(self, body: dict[str, Any]) -> None:
        self.alerts += 1
        if self.response is None or self.response.incident is not None:
            self.sink.send(body)
            return
        self.response.open(_complain(body))
        self.sink.send({**body, "incident": self.response.incident})
        if self.response.job is not None:
            self.sink.send(self.response.answer())


class Sink:
    """Where alerts go: standard output, and an address."""

    def __init__(self, as_json: bool, webhook: str | None) -> None:
        self.as_json, self.webhook = as_json, webhook

    def send(self, body: dict[str, Any]) -> None:
        """Say it; a receiver that is gone is named and survived."""
        click.echo(json.dumps(body) if self.as_json else show_text(_say(body)))
        if self.webhook is not None and (failed := post_alert(self.webhook, body)) is not None:
            click.echo(f"webhook failed: {failed}", err=True)


class Response:
    """What the first alert sets off: the logs on record, then a capture of the job beside them, and a verdict."""

    def __init__(self, paths: Sequence[str], job: Job | None) -> None:
        self.paths, self.job = tuple(Path(p).resolve() for p in paths), job
        self.incident: str | None = None

    def open(self, complaint: str) -> None:
        """Put the logs on record."""
        from firstfault.service import NamedPath, NewIncident, open_service

        with open_service(workers=False) as service:
            self.incident = service.start(NewIncident(tuple(map(NamedPath, self.paths)), complaint))

    def answer(self) -> dict[str, Any]:
        """Capture, diagnose all of it together; schema firstfault.alert/1, kind `verdict`."""
        from firstfault.commands.fault_alert import describe_verdict
        from firstfault.commands.triage import take_capture
        from firstfault.experiments.outcome import settle
        from firstfault.service import NamedPath, open_service

        incident = self.incident or ""
        folder: Path | None = None
        try:
            folder = take_capture(self.job) if self.job is not None else None
        except FirstfaultError as error:
            click.echo(f"capture failed: {show_line(str(error))}", err=True)
        with open_service(workers=False) as service:
            if folder is not None:
                service.add_evidence(incident, [NamedPath(folder / "captured")])
            settle(service, incident)
            diagnosis = service.diagnosis(incident)
            if diagnosis is None:
                raise CannotAnalyse(f"incident {incident} has no diagnosis; it is in the page")
            body = describe_verdict(diagnosis, service.workspace)
        return {**body, "kind": "verdict", "incident": incident, "capture": str(folder) if folder else None}  # fmt: skip


def _read_healthy(baseline: str) -> StepSeries:
    from firstfault_tools.metrics.sources.steps import parse_steps

    with open_log(baseline) as stream:
        healthy = parse_steps(enumerate(read_lines(stream), 1))
    if not len(healthy):
        raise click.UsageError(f"--baseline: {baseline} holds no step lines")
    return healthy


@click.command("watch", help=HELP)
@click.argument("paths", metavar="LOGS...", nargs=-1, required=True)
@click.option(
    "--baseline", type=click.Path(exists=True, dir_okay=False), help="log of a healthy run"
)
@click.option("--webhook", help="http(s) address that gets each alert as JSON")
@click.option("--once", is_flag=True, help="end at the first alert")
@click.option("--from-start/--from-end", default=True, show_default=True, help="where to begin")
@click.option("--stall-after", type=float, help="seconds of silence that count as a stall")
@click.option("--until-idle", type=float, help="end when all are silent for so many seconds")
@click.option(
    "--metrics-only", is_flag=True, help="judge step lines only, not what else the log says"
)
@click.option("--open-incident", is_flag=True, help="put the logs on record at the first alert")
@click.option(
    "--capture",
    metavar="OPTIONS",
    help="at the first alert run `firstfault triage OPTIONS`, add it to the incident and diagnose all",
)
@click.option("--json", "as_json", is_flag=True, help="one JSON object a line")
def watch(
    paths: tuple[str, ...],
    baseline: str | None,
    webhook: str | None,
    once: bool,
    from_start: bool,
    stall_after: float | None,
    until_idle: float | None,
    metrics_only: bool,
    open_incident: bool,
    capture: str | None,
    as_json: bool,
) -> None:
    """Check what was asked for, then follow."""
    if webhook is not None and not webhook.startswith(("http://", "https://")):
        raise click.UsageError("--webhook: must begin with http:// or https://")
    if "-" in paths and len(paths) > 1:
        raise click.UsageError("'-' is standard input and stands alone; name files instead")
    healthy = _read_healthy(baseline) if baseline is not None else None
    keeps = open_incident or capture is not None
    if keeps and "-" in paths:
        raise click.UsageError("--open-incident and --capture: need files, not standard input")
    response = Response(paths, _prepare(capture)) if keeps else None
    watching = Watching(paths, healthy, stall_after, metrics_only, Sink(as_json, webhook), response)
    if paths == ("-",):
        lines = read_lines(sys.stdin.buffer)
        while chunk := list(itertools.islice(lines, CHUNK)):
            watching.take("-", chunk, 0.0)
        sys.exit(1 if watching.alerts else 0)
    logs = JobLogs(paths, from_start)
    try:
        for _ in _follow(logs, watching, until_idle):
            if (once and watching.alerts) or watching.ended:
                break
    except KeyboardInterrupt:
        click.echo("stopped", err=True)
    finally:
        logs.close()
    sys.exit(1 if watching.alerts else 0)


def _prepare(capture: str | None) -> Job | None:
    from firstfault.commands.triage import prepare_capture

    try:
        return prepare_capture(shlex.split(capture)) if capture is not None else None
    except ValueError as error:
        raise click.UsageError(f"--capture: {error}") from error


def _follow(logs: JobLogs, watching: Watching, until_idle: float | None) -> Iterator[None]:
    """One turn a chunk that was read and a look at the clock, until all are idle."""
    quiet_since = time.monotonic()
    while True:
        for name in list(logs.followers):
            more = logs.read(name)
            while lines := list(itertools.islice(more, CHUNK)):
                quiet_since = time.monotonic()
                watching.take(name, lines, quiet_since)
                yield
        now = time.monotonic()
        watching.listen(now)
        yield
        if until_idle is not None and now - quiet_since >= until_idle:
            return
        time.sleep(min(POLL, until_idle or POLL))
        logs.look(now)


def _complain(body: dict[str, Any]) -> str:
    """What a person would say of it; a fault speaks for itself in the logs."""
    if body["kind"] == "fault":
        return ""
    return f"The run hangs: {body['title']}" if body["kind"] == "metrics.stalled" else body["title"]


def _say(body: dict[str, Any]) -> str:
    """An alert in few lines: what and where, how sure, and what to do."""
    lines = [e for e in body["evidence"] if e["line"]]
    place = f" [{lines[0]['file']}:{','.join(str(e['line']) for e in lines[:4] if e['file'] == lines[0]['file'])}]" if lines else ""  # fmt: skip
    stamp = time.strftime("%Y-%m-%d %H:%M:%S")
    if body["kind"] in ("fault", "verdict"):
        rows = [f"{stamp} {body['kind']} ({body['confidence']}): {show_line(body['title'])}{place}"]
    else:
        rows = [f"{stamp} {body['level']} {body['kind']}: {show_line(body['title'])}{place}"]
    following = body.get("next")
    if following is not None:
        rows.append(f"  next: {following['what']}")
        rows += [f"    {line}" for line in (following["command"] or "").splitlines()]
    if body.get("capture"):
        rows.append(f"  captured in {body['capture']}")
    if body.get("incident"):
        rows.append(f"  on record as incident {body['incident']}: firstfault chat opens it")
    return "\n".join(rows)


COMMAND = watch
