"""What is wrong with a master address: a number, a list, a variable left as it was?"""

from __future__ import annotations

import re
from ipaddress import IPv4Address

from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.causality.launch.unmet import MOST_LINES, describe_launch
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Finding
from firstfault_tools.log.digest import Line
from firstfault_tools.log.scan import make_line

_OCTAL = expression(r"^(?:\d{1,4}\.){3}\d{1,4}$")

_PLACEHOLDER = expression(
    r"(?i)^<.*>$|^(?:your|my|the)?[_-]?(?:master|head|node0|server|host)?[_-]?(?:ip|ip_?addr(?:ess)?|addr|address)(?:_of_\w+)?$|"
    r"^x+(?:\.x+)*$|^(?:none|null|undefined|nan)$"
)

TOLD = expression(
    r"(?:connect to|network address(?:es)? of|attempt to connect to an IPv[46] address of) (?:any network address of )?"
    r"\((?P<address>[^()]{1,200}?),\s*(?P<port>\d{1,5})\)"
)

_SET = expression(
    r"\b(?:MASTER_ADDR|master_addr|master-addr|rdzv_endpoint|rdzv-endpoint|main_process_ip)['\"]?\s*[=: ]\s*['\"]?(?P<address>[^\s'\",]{1,200})"
)


def find_odd_address(incident: LogIncident) -> Finding | None:
    """An address of the master that cannot mean what its owner hopes."""
    seen: set[str] = set()
    marks = ("connect to", "network address", "MASTER_ADDR", "aster_addr", "aster-addr", "rdzv")
    for count, (digest, number, text) in enumerate(incident.lines_with(marks)):
        if count >= MOST_LINES:
            break
        for pattern in (TOLD, _SET):
            for match in pattern.finditer(text[:2000]):
                address = match["address"].strip()
                if address in seen or (pattern is _SET and text[: match.start()].count("#")):
                    continue
                seen.add(address)
                why = explain_address(address)
                if why is None or (pattern is _SET and "$" in address):
                    continue
                line = make_line(digest.file, number, text, digest.year)
                return describe_launch(
                    "meeting",
                    f"the master address is {address!r}: {why}",
                    [line, *_quote_resolved(incident, address, line)],
                    Category.ENVIRONMENT,
                )
    return None


def _quote_resolved(incident: LogIncident, address: str, first: Line) -> list[Line]:
    """Lines that show what a numeric name became."""
    if not address.isdecimal():
        return []
    word = str(IPv4Address(int(address[:12])))
    found = incident.lines_with((word,))
    lines = (make_line(d.file, n, t, d.year) for d, n, t in found if word in t)
    line = next((one for one in lines if one.number != first.number), None)
    return [line] if line is not None else []


def explain_address(address: str) -> str | None:
    """What is wrong with the text of a master address (without its port), None where nothing is."""
    bare, _, port = address.rpartition(":")
    name = bare if bare and port.isdecimal() and ":" not in bare else address
    if name.isdecimal() and int(name[:12]) < 2**32:
        return (
            "a host name made of digits only is parsed as one 32-bit number and not resolved as a name: it means the IP "
            f"address {IPv4Address(int(name[:12]))}, which nobody has"
        )
    if _OCTAL.match(name) and any(len(p) > 1 and p.startswith("0") for p in name.split(".")):
        return "numbers that begin with 0 are read as octal, so it means another address"
    if "@" in name:
        return (
            f"it names a user as for ssh; the master address is the host alone ({name.rpartition('@')[2]}), and with the "
            "user in front no such host is found"
        )
    if "://" in name:
        return "it is a URL; the master address is a host name or IP address without scheme or path"
    if re.search(r"\[\d[-,\d]{0,200}\]|,", name) and not name.startswith("["):
        return (
            "it is a list of nodes and not the name of one; take the first of `scontrol show hostnames "
            "$SLURM_JOB_NODELIST`"
        )
    if "$" in name or "{" in name or "%" in name:
        return "a variable in it was not expanded, so no such host can be found"
    if _PLACEHOLDER.match(name):
        return "it is a placeholder or an empty value and no host; put the address of the first node there"
    if name == "0.0.0.0":
        return "0.0.0.0 is for listening only; on other nodes it means that node itself"
    return None
