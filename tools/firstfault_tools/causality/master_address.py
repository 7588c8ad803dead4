"""What is wrong with the text of a master address: a number, a list, a variable left as it was?"""

from __future__ import annotations

import re
from ipaddress import IPv4Address

from firstfault_tools.expressions import expression

_OCTAL = expression(r"^(?:\d{1,4}\.){3}\d{1,4}$")
_PLACEHOLDER = expression(
    r"(?i)^<.*>$|^(?:your|my|the)?[_-]?(?:master|head|node0|server|host)?[_-]?(?:ip|ip_?addr(?:ess)?|addr|address)(?:_of_\w+)?$|"
    r"^x+(?:\.x+)*$|^(?:none|null|undefined|nan)$"
)


def explain_address(address: str) -> str | None:
    """What is wrong with the text of a master address (without its port), None where nothing is."""
    bare, _, port = address.rpartition(":")
    name = bare if bare and port.isdecimal() and ":" not in bare else address
    if name.isdecimal() and int(name[:12]) < 2**32:
        return (
            "a host name made of digits only is parsed as one 32-bit number and not resolved as a name: it means the IP "
            f"address {IPv4Address(int(name[:12]))}, which nobody has; give the host (or container) a name with a "
            "letter in it, or name the master by its address (127.0.0.1 on one node)"
        )
    if _OCTAL.match(name) and any(len(p) > 1 and p.startswith("0") for p in name.split(".")):
        return (
            "numbers that begin with 0 are read as octal, so it means another address; write the address without "
            "leading zeros"
        )
    if "@" in name:
        return (
            f"it names a user as for ssh; the master address is the host alone ({name.rpartition('@')[2]}), and with the "
            "user in front no such host is found"
        )
    if "://" in name:
        return "it is a URL; the master address is a host name or IP address without scheme or path"
    if re.search(r"\[\d+[-,\d]*\]|,", name) and not name.startswith("["):
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
