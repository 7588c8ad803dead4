"""How are log lines written? To standard error, as text or as one JSON object a line."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

from firstfault.settings import LogFormat
from firstfault_tools.log.secrets import redact

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonLines(logging.Formatter):
    """One JSON object a line; what `extra` adds becomes keys of it. Secrets are redacted."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": redact(record.getMessage()),
        }
        entry |= {k: v for k, v in vars(record).items() if k not in _STANDARD}
        if record.exc_info:
            entry["error"] = redact(self.formatException(record.exc_info))
        return json.dumps(entry, default=str, ensure_ascii=False)


def set_up_logs(form: LogFormat, level: int = logging.INFO) -> None:
    """Send all log lines of this process to standard error in the wanted form."""
    handler = logging.StreamHandler(sys.stderr)
    if form is LogFormat.JSON:
        handler.setFormatter(JsonLines())
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=level, handlers=[handler], force=True)
    logging.getLogger("alembic").setLevel(logging.WARNING)
