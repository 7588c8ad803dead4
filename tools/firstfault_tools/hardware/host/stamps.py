"""When and on which host was a kernel message written, and what is left of the line without that?

Understands `[  144.98]` (seconds since boot), `dmesg -T` in any locale (the weekday and month names of
the machine's language), classic syslog, RFC 3339 syslog and `dmesg --time-format iso`, journal JSON
lines, and a leading `host:` as pdsh and clush print it.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime

from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression

# First letters are enough to tell months apart once lower-cased; longest prefixes first. English,
# German, French, Spanish, Portuguese, Italian, Dutch, Polish, Russian; CJK locales print a digit.
_MONTHS = {
    "jan": 1, "ene": 1, "gen": 1, "sty": 1, "янв": 1,
    "feb": 2, "fév": 2, "fev": 2, "lut": 2, "фев": 2,
    "mar": 3, "mär": 3, "mrz": 3, "maa": 3, "mrt": 3, "мар": 3,
    "apr": 4, "avr": 4, "abr": 4, "kwi": 4, "апр": 4,
    "may": 5, "mai": 5, "mei": 5, "mag": 5, "maj": 5, "май": 5, "мая": 5,
    "jun": 6, "juin": 6, "giu": 6, "cze": 6, "июн": 6,
    "jul": 7, "juil": 7, "lug": 7, "lip": 7, "июл": 7,
    "aug": 8, "aoû": 8, "ago": 8, "sie": 8, "авг": 8,
    "sep": 9, "set": 9, "wrz": 9, "сен": 9,
    "oct": 10, "okt": 10, "out": 10, "ott": 10, "paź": 10, "окт": 10,
    "nov": 11, "lis": 11, "ноя": 11,
    "dec": 12, "dez": 12, "déc": 12, "dic": 12, "gru": 12, "дек": 12,
}  # fmt: skip

_BOOT = expression(r"\[\s*(\d{1,10}\.\d{3,9})\]\s?")
_CTIME = expression(
    r"\[[^\W\d]{1,12}\.?,?\s+(?P<month>[^\W\d]{2,10}\.?|\d{1,2}\s?[月월])\s*(?P<day>\d{1,2})[日일]?\s+"
    r"(?P<clock>\d{2}:\d{2}:\d{2})\s+(?P<year>\d{4})\]\s?"
)
_CTIME_DAY_FIRST = expression(
    r"\[[^\W\d]{1,12}\.?,?\s+(?P<day>\d{1,2})\.?\s+(?P<month>[^\W\d]{2,10}\.?)\s+"
    r"(?P<clock>\d{2}:\d{2}:\d{2})\s+(?P<year>\d{4})\]\s?"
)
_ISO = expression(
    r"\[?(?P<iso>\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2}(?:[.,]\d{1,9})?)(?P<zone>Z|[+-]\d{2}:?\d{2})?\]?"
    r"\s?"
)
_SYSLOG = expression(r"[A-Z][a-z]{2}\s+\d{1,2}\s\d{2}:\d{2}:\d{2}\s")
_SENDER = expression(r"(?P<host>[A-Za-z0-9][\w.-]{0,62})\s(?P<tag>[\w./-]{1,40}(?:\[\d+\])?):\s")
_FANOUT = expression(
    r"(?P<host>[A-Za-z0-9][\w.-]{1,62}):\s+(?=\[|[A-Z][a-z]{2}\s+\d|NVRM|\d{4}-\d)"
)
_PRIORITY = expression(r"(?:<\d{1,3}>|(?:kern|user|daemon)\s*:\s*\w+\s*:\s*)")


@dataclass(frozen=True, slots=True)
class KernelLine:
    """A kernel message without its prefix.

    time: seconds since the epoch; a stamp without a zone is read as UTC. boot_s: seconds since boot.
    """

    message: str
    time: float | None = None
    boot_s: float | None = None
    host: str | None = None


def read_month(text: str) -> int | None:
    """Number of a month name in one of the known languages, or of `2月` and `2월`."""
    name = text.strip().lower().rstrip(".月월 ")
    if name.isdecimal():
        return int(name) if 1 <= int(name) <= 12 else None
    return _MONTHS.get(name[:4]) or _MONTHS.get(name[:3])


def _epoch(year: str, month: int | None, day: str, clock: str) -> float | None:
    if month is None:
        return None
    hour, minute, second = (int(part) for part in clock.split(":"))
    try:
        stamp = datetime(int(year), month, int(day), hour, minute, second, tzinfo=UTC)
    except ValueError:
        return None
    return stamp.timestamp()


def _iso_epoch(iso: str, zone: str | None) -> float | None:
    text = iso.replace(",", ".").replace(" ", "T") + (zone or "")
    try:
        stamp = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (stamp if stamp.tzinfo else stamp.replace(tzinfo=UTC)).timestamp()


def _read_journal(line: str) -> KernelLine | None:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(entry, dict) or not isinstance(entry.get("MESSAGE"), str):
        return None
    micros = str(entry.get("__REALTIME_TIMESTAMP", ""))
    host = entry.get("_HOSTNAME")
    time = (
        int(micros) / 1e6 if micros.isascii() and micros.isdecimal() and len(micros) < 20 else None
    )
    return KernelLine(entry["MESSAGE"], time=time, host=host if isinstance(host, str) else None)


def read_stamp(line: str) -> KernelLine:
    """Split one line into stamp, host and message; unknown prefixes stay in the message."""
    text = line.strip()
    of_journal = text.startswith("{") and '"MESSAGE"' in text
    if of_journal and (journal := _read_journal(text)) is not None:
        return journal
    time = boot_s = host = None
    named_sender = False
    if fanout := _FANOUT.match(text):
        host, text = fanout["host"], text[fanout.end() :]
    if priority := _PRIORITY.match(text):
        text = text[priority.end() :]
    if boot := _BOOT.match(text):
        boot_s, text = float(boot[1]), text[boot.end() :]
    elif ctime := _CTIME.match(text) or _CTIME_DAY_FIRST.match(text):
        time = _epoch(ctime["year"], read_month(ctime["month"]), ctime["day"], ctime["clock"])
        text = text[ctime.end() :]
    elif iso := _ISO.match(text):
        time, text = _iso_epoch(iso["iso"], iso["zone"]), text[iso.end() :]
    elif syslog := _SYSLOG.match(text):
        text, named_sender = text[syslog.end() :], True
    # Only syslog always names the sender; after any other stamp `nvme nvme0: ` is the message itself.
    sender = _SENDER.match(text)
    if sender and (named_sender or sender["tag"].startswith("kernel") or "[" in sender["tag"]):
        host, text = sender["host"], text[sender.end() :]
    if boot_s is None and (boot := _BOOT.match(text)):
        boot_s, text = float(boot[1]), text[boot.end() :]
    return KernelLine(text, time=time, boot_s=boot_s, host=host)
