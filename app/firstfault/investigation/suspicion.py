"""Which lines read like an error and are not explained? Said of lines that training did not survive."""

from __future__ import annotations

from firstfault.investigation.examination import Examination
from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.expressions import expression
from firstfault_tools.log.digest import FileDigest, Line
from firstfault_tools.log.scan import make_line
from firstfault_tools.roles import Role

_SUSPICIOUS = expression(
    r"\b(?:ERROR|FATAL|CRITICAL|\w*Error|\w*Exception|error:|fatal|panic|[Aa]bort(?:ed|ing)?|[Ff]ailed|[Cc]rash(?:ed)?|SIG[A-Z]{3,4})\b"
)
_HARMLESS = expression(
    r"(?i)\b(?:0 errors?|no errors?|error[_ ]?rate|errors?[:=]\s*0|without error|error_file\s*:|"
    r"correct(?:ed|able) (?:\w+ )?errors?|"
    # the kernel announces a record so, whatever its severity, which stands on another line of it (ghes.c, edac_mc.c)
    r"handling mce memory error|hardware error from apei generic hardware error source|"
    r"on_error|ignore_errors|(?:log|loss|mean|std|rel|abs)[_ ]error|error ?[:=] ?\d{1,6}\.\d+(?:e[-+]?\d+)?|"
    r"FutureWarning|DeprecationWarning|UserWarning|Exception ignored (?:in|while)|"
    r"attempt \d+ ?(?:/|of) ?\d+|retrying in|panic=-?\d+|oops=panic)\b|"
    r"(?:severity|type)[:=] ?corrected|\b(?:has|have|was|were) been corrected\b|requires? no (?:further )?action|[:=]\s*(?:0|no|none|n/a|not active|disabled)\s*$"
)
_INFO = expression(r"(?:^|[\s\]:])I(?:\d{4} |\s+[\w./-]+:\d+\])|\bINFO\b|\b[Ii]nfo\b ?[\]|:]")
_NAMED_ERROR = expression(
    r"\b(?:ERROR|FATAL|CRITICAL|Error|\w+Error|Exception|error:|fatal|panic)\b"
)
_PART = expression(
    r"^.{0,60}?\b(?:Exception raised from \S+ at .{1,200}\(most recent call first\):|frame #\d+: )"
)
"""Lines that carry on the message of the C++ library before them."""

_RECORD = expression(r"(?P<record>\{\d+\}\[Hardware Error\]):(?P<corrected>.*\bcorrected\b)?")
"""One line of a record of the kernel, which tells on another line whether it was corrected."""

_AT_EXIT = expression(r"^.{0,80}?\bException ignored (?:in|while)\b")
_RAISED = expression(r"^(?:\[?\w+\]?:? )?(?:\w+\.)*[A-Z]\w*(?:Error|Exception)\b")
"""What an interpreter that ends ignores, and the exception it names on the next line."""

_COMMAND = expression(r"^\s{0,8}[\w.@~:/\[\]-]{0,60}\$ [a-z./]")
"""What somebody typed at a prompt: the words it looks for say nothing of the run."""

MAX_SUSPICIOUS = 40


def suspicious_lines(examination: Examination) -> list[Line]:
    """Lines that read like an error, that no finding explains and that training did not survive."""
    explained = _explained_lines(examination)
    out: list[Line] = []
    for digest in examination.logs.digests:
        told = at_exit = False
        corrected = _corrected_records(digest)
        for number, text in digest.kept:
            if told and _PART.search(text):
                continue
            ignored, at_exit = at_exit, _AT_EXIT.search(text) is not None
            told = (digest.file, number) in explained
            if told or not _SUSPICIOUS.search(text) or (ignored and _RAISED.search(text)):
                continue
            if _HARMLESS.search(text) or _COMMAND.search(text) or _record_of(text) in corrected:
                continue
            line = make_line(digest.file, number, text, digest.year)
            if _only_informs(text) or _is_outlived(examination.logs, line):
                continue
            out.append(line)
            if len(out) >= MAX_SUSPICIOUS:
                return out
    return out


def _explained_lines(examination: Examination) -> set[tuple[str, int]]:
    """Lines that a finding quotes, a signature knows or a traceback holds."""
    explained = {(e.file, e.line) for f in examination.findings for e in f.evidence}
    explained |= {(h.line.file, h.line.number) for d in examination.logs.digests for h in d.hits}
    explained |= {(t.line.file, n) for t in examination.logs.tracebacks for n in range(t.start - 1, t.line.number + 1)}  # fmt: skip
    return explained


def _corrected_records(digest: FileDigest) -> frozenset[str]:
    """Records of the kernel that say of themselves that the hardware corrected the error."""
    told = (
        m for _, text in digest.kept if "[Hardware Error]" in text and (m := _RECORD.search(text))
    )
    return frozenset(m["record"] for m in told if m["corrected"])


def _record_of(text: str) -> str | None:
    record = _RECORD.search(text) if "[Hardware Error]" in text else None
    return record["record"] if record is not None else None


def _only_informs(text: str) -> bool:
    """A line marked as information that holds no more than a word such as `aborting`."""
    return _INFO.search(text[:200]) is not None and _NAMED_ERROR.search(text) is None


def _is_outlived(logs: LogIncident, line: Line) -> bool:
    """The run went on after the line. What stands between the last step and the end was got over by nothing."""
    if not logs.survived(line):
        return False
    if logs.role_of(line.file) is not Role.RUN or logs.ignored(line):
        return True
    advance = logs.advances[line.file]
    finish = logs.progress[line.file].finished_at()
    if advance is None or advance.last.number > line.number:
        return True
    return finish is not None and line.number > finish
