"""What does a raw log line say once terminal colours, progress bars and JSON wrapping are taken off?

`normalise` is a pure function of the raw line, so a quote can be checked again at any time: whoever
has the file and the line number gets the same text. Only redaction (secrets.py) comes after it.
"""

from __future__ import annotations

import json

from firstfault_tools.expressions import expression

MAX_LINE = 64 * 1024
"""Characters kept of one line; longer ones are cut with a mark, the rest is counted as read."""

CUT_MARK = " …[line cut]"

_ANSI = expression(
    rb"\x1b(?:\[[0-9;:?]*[ -/]*[@-~]|\][^\x07\x1b]{0,2048}(?:\x07|\x1b\\)|[()][A-Z0-9]|[=>78cDEHM])"
)
_ORPHAN_ANSI = expression(r"(?<![\w\]])\[(?:\d{1,3}(?:;\d{1,3})*)m")
_BAR = expression(r"\d{1,3}%\s?\|[^|\n]{0,200}\|")
_PREPARES = expression(
    r"(?i)\b(?:(?:down|up)?load(?:ing)?|fetch(?:ing)?|map(?:ping)?|filter(?:ing)?|tokeni[sz]\w{1,6}|pack(?:ing)?|cach(?:e|ing)|"
    r"sav(?:e|ing)|writing|reading|convert(?:ing)?|pre-?process(?:ing)?|flattening|grouping|resolving|extract(?:ing)?|"
    r"captur(?:e|ing)|casting|shuffling|indexing|quanti[sz]ing|materiali[sz]ing|creating|computing checksums|"
    r"generating \w{1,30} (?:split|examples)|(?:processed|rendering|adding|processing) (?:prompts|requests))\b[^|%\n]{0,80}:\s{0,3}\d{1,3}%\s?\|"
)
"""What the words before the percentage name; a bar of training has none, or an epoch."""

_CONTROL = expression(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")
_JSON_TEXT_KEYS = ("log", "message", "msg", "textPayload", "line", "MESSAGE", "body", "content")
_JSON_ERROR_KEYS = (
    "exc_type",
    "exc",
    "exception",
    "error",
    "err",
    "exc_info",
    "stack_trace",
    "traceback",
    "detail",
)


def strip_ansi(data: bytes) -> bytes:
    """Remove terminal escape sequences from raw bytes, and NULs: a cut log or a stretch of UTF-16 leaves them."""
    if b"\0" in data:
        data = data.replace(b"\0", b"")
    return _ANSI.sub(b"", data) if b"\x1b" in data else data


def unwrap_json(text: str) -> str:
    """Text of a line that a log shipper wrapped as one JSON object; the line itself otherwise.

    Metric rows (JSON objects without a text key) are left alone.
    """
    if not (text.startswith("{") and text.endswith("}")):
        return text
    try:
        row = json.loads(text)
    except (ValueError, RecursionError):
        return text
    if not isinstance(row, dict):
        return text
    for key in _JSON_TEXT_KEYS:
        value = row.get(key)
        if isinstance(value, str) and value.strip():
            return _with_json_context(row, value.rstrip("\n"))
    return text


def _with_json_context(row: dict[str, object], text: str) -> str:
    """Keep who said it and what else it holds: time, host, rank and error fields of the wrapper."""
    head: list[str] = []
    time = _first_text(row, ("time", "timestamp", "@timestamp", "ts"))
    if time:
        head.append(time)
    host = _first_text(row, ("host", "hostname", "node", "node_name", "pod"))
    if host and " " not in host:
        head.append(f"{host}:")
    local = next((k for k in ("local_rank", "localrank", "lrank") if _is_number(row, k)), None)
    for key in ("rank", "global_rank", "grank"):
        if _is_number(row, key):
            head += [f"[default{row[local]}]:"] if local is not None else []
            head.append(f"[rank{row[key]}]:")
            break
    level = _first_text(row, ("level", "levelname", "severity"))
    if level and len(level) < 12:
        head.append(level)
    tail = [
        " ".join(str(row[key]).split())
        for key in _JSON_ERROR_KEYS
        if isinstance(row.get(key), str) and row[key]
    ]
    return " | ".join([" ".join([*head, text]), *tail])


def _is_number(row: dict[str, object], key: str) -> bool:
    return str(row.get(key, "")).isdecimal()


def _first_text(row: dict[str, object], keys: tuple[str, ...]) -> str:
    return next((str(row[k]) for k in keys if isinstance(row.get(k), str) and row[k]), "")


def collapse_progress(text: str) -> str:
    """Text of a line in which progress bars overwrote each other with carriage returns.

    What is no bar comes first, then the last state of the bar.
    """
    parts = [part.strip() for part in text.split("\r") if part.strip()]
    if len(parts) < 2:
        return parts[0] if parts else ""
    words = [part for part in parts if not _is_bar(part)]
    bars = [part for part in parts if _is_bar(part)]
    return "  ".join([*words, *bars[-1:]])


def _is_bar(part: str) -> bool:
    match = _BAR.search(part)
    return match is not None and "ProcessGroup" not in part and "Error" not in part


def counts_preparation(text: str) -> bool:
    """The bar of a line counts weights, files or samples that are made ready, not steps."""
    return "%" in text and _PREPARES.search(text) is not None


_CONTROL_BYTES = bytes({*range(0x20), 0x7F} - {0x09, 0x0A})
_ORPHAN_BYTES = expression(rb"\[\d{1,3}(?:;\d{1,3})*m")


def is_plain(block: bytes) -> bool:
    """No line of the block would be changed by `normalise`, so it may be decoded as a whole."""
    if len(block) > MAX_LINE and max(map(len, block.split(b"\n"))) > MAX_LINE:
        return False
    # Deleting is a table look-up a byte; a search for a class of bytes is ten times slower.
    if len(block.translate(None, _CONTROL_BYTES)) != len(block):
        return False
    if block.startswith(b"{") or b"\n{" in block:
        return False
    return _ORPHAN_BYTES.search(block) is None


def cut_line(raw: bytes) -> bytes:
    """The bytes of a raw line that are looked at: NULs, of which a cut log leaves megabytes, do not count."""
    if b"\0" in raw:
        raw = raw.replace(b"\0", b"")
    return raw[: MAX_LINE * 4]


def normalise(raw: bytes) -> str:
    """The text of one raw line: decoded, without colours, bars collapsed, JSON unwrapped.

    Undecodable bytes become U+FFFD, control characters become spaces, overlong lines are cut.
    """
    text = strip_ansi(cut_line(raw)).decode("utf-8", errors="replace").rstrip("\r\n")
    if text.startswith("{"):
        text = unwrap_json(text)
    if "\r" in text:
        text = collapse_progress(text)
    if "[" in text and "m" in text:
        text = _ORPHAN_ANSI.sub("", text)
    text = _CONTROL.sub(" ", text)
    if len(text) > MAX_LINE:
        return text[:MAX_LINE] + CUT_MARK
    return text
