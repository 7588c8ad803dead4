"""What do secrets look like that need no name? Keys with a known beginning, headers, URLs, commands.

Patterns are google-re2's: linear whatever the line holds. Where one has a group `secret`, that part
is hidden, else all of it. Formats of keys stand in secret_formats.json with their sources.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from firstfault_tools.log.secret_values import read_formats

SHAPES: tuple[tuple[str, str], ...] = (
    ("jwt", r"\beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}(?:\.[A-Za-z0-9_-]*)?"),
    ("slack_webhook", r"hooks\.slack\.com/(?:services|workflows|triggers)/(?P<secret>[A-Za-z0-9/+]{20,})"),
    ("service_token", r"discord(?:app)?\.com/api/webhooks/(?P<secret>\d{5,30}/[\w-]{30,})"),
    ("service_token", r"webhook\.office\.com/webhookb2/(?P<secret>[\w@/-]{40,})"),
    ("jwt", r"\bZXlK[A-Za-z0-9+/_-]{40,}={0,2}"),
    ("service_token", r"(?:\b|/bot)(?P<secret>\d{8,10}:AA[\w-]{32,34})\b"),
    ("service_token", r"\b[0-9a-f]{32}-us\d{1,2}\b"),
    ("service_token", r"\bpat(?:[A-Za-z0-9]{14}\.[0-9a-f]{64}|-(?:na|eu)\d-[0-9a-f-]{36})\b"),
    ("service_token", r"\b[ps]at\.[\w-]{22}\.[A-Za-z0-9]{24}\.[A-Za-z0-9]{20}\b"),
    ("service_token", r"\bv1\.0-[0-9a-f]{24}-[0-9a-f]{100,}"),
    ("service_token", r"\b[ps]k\.[A-Za-z0-9]{60,}\.[A-Za-z0-9_-]{22}\b"),
    ("service_token", r"\bsl\.[\w=-]{130,}"),
    ("service_token", r"\bt1\.[\w-]{20,}={0,2}\.[\w-]{60,}"),
    ("service_token", r"\bEAA[MC][A-Za-z0-9]{100,}"),
    ("service_token", r"\bA{22}[A-Za-z0-9%]{80,}"),
    ("service_token", r"\b\w{6}_\w{29}_mmk\b"),
    ("service_token", r"\b(?:sc|ext|scauth|authress)_[A-Za-z0-9]{5,30}\.[A-Za-z0-9]{4,6}\.acc[_-][A-Za-z0-9-]{10,32}\.[\w+/=-]{30,}"),
    ("service_token", r"\b(?P<secret>[MNO][A-Za-z\d]{23,25}\.[\w-]{6}\.[\w-]{27,40})\b"),
    ("service_token", r"\b(?P<secret>[A-Za-z0-9]{14}\.atlasv1\.[\w=-]{40,})"),
    ("azure_key", r"(?:^|[\s\"'=:>(,])(?P<secret>[A-Za-z0-9_~.]{3}\dQ~[A-Za-z0-9_~.-]{31,34})"),
    ("url_password", r"\b[A-Za-z][A-Za-z0-9+.-]{1,20}://[^\s:/@<\"']*:(?P<secret>[^\s\"'<>]+?)@[\w.\[\]:-]+(?:[/?#,;)\]\s\"'\\]|$)"),
    ("url_password", r"\b[A-Za-z][A-Za-z0-9+.-]{1,20}://(?P<secret>[A-Za-z0-9_-]{20,})@"),
    ("url_password", r"\b[\w.-]+:(?P<secret>[^\s@<>\"'/:]{4,})@(?:tcp|unix)\("),
    ("url_password", r"(?i)\b(?:sqlplus|impdp|expdp)\s+\w+/(?P<secret>[^\s@\"']{4,})@"),
    ("bearer", r"(?i)\bbearer\s+\\*[\"']?(?P<secret>[A-Za-z0-9._~+/-]{12,}=*)"),
    ("basic_auth", r"(?i)\bauthorization\\*[\"']?\s*[:=,]\s*\\*[\"']?(?:(?:basic|token|apikey|api-key|ssws|negotiate|digest|ntlm|key)\s+)?(?P<secret>[A-Za-z0-9+/._~-]{8,}=*)"),
    ("basic_auth", r"\bSSWS\s+(?P<secret>[\w-]{30,})"),
    ("basic_auth", r"[\"']auth\\*[\"']\s*:\s*\\*[\"'](?P<secret>[A-Za-z0-9+/]{12,}=*)"),
    ("cookie", r"(?i)\b(?:set-)?cookie\\*[\"']?:\s*[\"']?(?P<secret>[^\s=;,]+=.{4,})"),
    ("private_key", r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----(?P<secret>.+)"),
    ("tracker_key", r"\bwandb\s+login\b(?:\s+--[\w-]+(?:=\S+)?)*\s+[\"']?(?P<secret>[0-9A-Za-z_]{20,})"),
    ("tracker_key", r"(?i)\bhit enter\b[^:\n]*:\s*(?P<secret>[0-9A-Za-z_]{20,})"),
    ("password", r"\bsshpass\s[^|;\n]*?-p\s*[\"']?(?P<secret>[^\s\"'-][^\s\"']{3,})"),
    ("password", r"\b(?:docker|podman|nerdctl|oras|crane|skopeo|helm|oc|az|mongosh?|mongodump)\b[^|;\n]*?\s-p\s*[\"']?(?P<secret>[^\s\"'-][^\s\"']*[^\d\s\"':/][^\s\"']*)"),
    ("password", r"\b(?:mysql\w*|mariadb\w*|mydumper)\b[^|;\n]*?\s-p[\"']?(?P<secret>[^\s\"'=-][^\s\"']{3,})"),
    ("password", r"\bredis-cli\b[^|;\n]*?\s-a\s+[\"']?(?P<secret>[^\s\"'-][^\s\"']{3,})"),
    ("password", r"^\s*(?:requirepass|masterauth)\s+[\"']?(?P<secret>[^\s\"']{4,})"),
    ("password", r"\bipmi(?:tool|power)\b[^|;\n]*?\s-[Pp]\s+[\"']?(?P<secret>[^\s\"'-][^\s\"']{3,})"),
    ("bearer", r"[?&]code=(?P<secret>[A-Za-z0-9/._-]{20,})"),
    ("password", r"\bldap(?:search|modify|add|whoami|delete)\b[^|;\n]*?\s-w\s*[\"']?(?P<secret>[^\s\"'-][^\s\"']{3,})"),
    ("password", r"\b(?:plink|pscp|putty)\b[^|;\n]*?\s-pw\s+[\"']?(?P<secret>[^\s\"'-][^\s\"']{3,})"),
    ("password", r"\b(?:smbclient|mount\.cifs|rpcclient|net)\b[^|;\n]*?\s-U\s*[\"']?[^\s%\"']+%(?P<secret>[^\s\"']{3,})"),
    ("password", r"\b(?:curl|wget|http)\b[^|;\n]*?\s(?:-u|--user|--proxy-user|-a)[ =]*[\"']?[^\s:\"']+:(?P<secret>[^\s\"']{4,})"),
    ("password", r"\bopenssl\b[^|;\n]*?\bpass:(?P<secret>[^\s\"']{3,})"),
    ("password", r"\becho\s+(?:-n\s+)?[\"']?(?P<secret>[^\s\"'|$][^\s\"'|]{3,})[\"']?\s*\|[^|\n]*(?:--password-stdin|--passphrase-fd|--with-token|\bpasswd\b|sudo -S|\blogin\b)"),
    ("password", r"\b(?:login|account)\s+\S+\s+(?:account\s+\S+\s+)?password\s+(?P<secret>\S{4,})"),
    ("password", r"(?i)\bidentified\s+by\s+(?:password\s+)?[\"'](?P<secret>[^\"']{3,})"),
    ("password", r"(?i)\bwith\s+(?:encrypted\s+)?password\s+[\"'](?P<secret>[^\"']{3,})"),
    ("password", r"(?i)<[\w.-]*(?:password|passwd|passphrase|secret|apikey|api-key|access-?token)>(?P<secret>[^<]{4,})<"),
)  # fmt: skip


@cache
def compile_linear(pattern: str, ignore_case: bool = False) -> Any:
    """A google-re2 pattern, compiled at first use."""
    import re2

    options = re2.Options()
    options.log_errors = False
    options.case_sensitive = not ignore_case
    options.max_mem = 64 << 20
    return re2.compile(pattern, options)


def place_of(match: Any, group: str) -> tuple[int, int]:
    """(start, end) of a named group, or of the whole match where the pattern has none of that name."""
    index = match.re.groupindex.get(group, 0)
    return match.start(index), match.end(index)


@cache
def _starts() -> tuple[tuple[str, str, bool], ...]:
    """(beginning of a key, kind, must hold a digit), longest first."""
    rows = [
        (start, row["kind"], bool(row.get("digit")))
        for row in read_formats()["tokens"]
        for start in row["start"]
    ]
    return tuple(sorted(rows, key=lambda r: -len(r[0])))


@cache
def token_pattern() -> str:
    """All keys that are known by how they begin."""
    import re2

    ways = [
        f"(?:{'|'.join(map(re2.escape, row['start']))})[{row['body']}]{{{row['least']},}}"
        for row in read_formats()["tokens"]
    ]
    return rf"(?:\b|%3[Dd]|_)(?P<secret>{'|'.join(ways)})"


def kind_of_token(token: str) -> str:
    """Kind of a key found by `token_pattern`; '' where it is a name that only begins like one."""
    for start, kind, needs_digit in _starts():
        if token.startswith(start):
            body = token[len(start) :]
            if needs_digit and not any(map(str.isdigit, body)):
                return ""
            return str(kind)
    return ""
