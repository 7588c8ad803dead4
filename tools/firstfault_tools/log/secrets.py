"""Which characters of a line must never leave this machine? Secrets become `<redacted:kind>`."""

from __future__ import annotations

import re
from collections import Counter
from functools import partial

# kind -> pattern; where a pattern has a group `secret`, only that part is replaced.
_PATTERNS: tuple[tuple[str, str], ...] = (
    ("aws_access_key", r"\b(?:AKIA|ASIA|ABIA|ACCA)[0-9A-Z]{16}\b"),
    (
        "aws_secret_key",
        r"(?i)aws_?(?:secret|session)[a-z_]*[\"']?\s*[:=]\s*[\"']?(?P<secret>[A-Za-z0-9/+=]{30,2000})",
    ),
    ("google_api_key", r"\bAIza[0-9A-Za-z_-]{35}\b"),
    (
        "azure_key",
        r"(?i)\b(?:AccountKey|SharedAccessKey|sig)=(?P<secret>[A-Za-z0-9+/%]{20,200}={0,2})",
    ),
    ("huggingface_token", r"\b(?:hf|api_org)_[A-Za-z0-9]{20,}\b"),
    ("openai_key", r"\bsk-(?:proj-|ant-|or-)?[A-Za-z0-9_-]{20,}\b"),
    ("github_token", r"\b(?:gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{30,})\b"),
    ("gitlab_token", r"\bglpat-[A-Za-z0-9_-]{20,}"),
    ("slack_token", r"\bxox[abeprs]-[A-Za-z0-9-]{10,}"),
    ("slack_webhook", r"hooks\.slack\.com/services/(?P<secret>[A-Za-z0-9/]{20,})"),
    (
        "tracker_key",
        r"(?i)\b(?:wandb|comet|neptune|mlflow|clearml|swanlab)[a-z_]*(?:key|token|secret|password)[\"']?"
        r"\s*[:=]\s*[\"']?(?P<secret>[A-Za-z0-9_.+/=-]{16,})",
    ),
    ("jwt", r"\beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{5,}"),
    ("bearer", r"(?i)\bbearer\s+(?P<secret>[A-Za-z0-9._~+/-]{12,}=*)"),
    (
        "basic_auth",
        r"(?i)\bauthorization[\"']?\s*[:=]\s*[\"']?basic\s+(?P<secret>[A-Za-z0-9+/]{8,}=*)",
    ),
    ("url_password", r"\b[a-z][a-z0-9+.-]{1,20}://[^\s:/@]{0,100}:(?P<secret>[^\s/@]{1,200})@"),
    ("private_key", r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----(?P<secret>.*)"),
    (
        "password",
        r"(?i)\b[\w.-]{0,40}(?:passw(?:or)?d|passwd|secret|api_?key|access_?token|auth_?token)[\"']?"
        r"\s*[:=]\s*[\"']?(?P<secret>(?!<redacted)[^\s\"',;&)}\]]{6,200})",
    ),
)
_COMPILED = tuple((kind, re.compile(pattern)) for kind, pattern in _PATTERNS)
_HINT = re.compile(
    r"AKIA|ASIA|ABIA|ACCA|AIza|hf_|api_org_|sk-|gh[pousr]_|github_pat|glpat-|xox|hooks\.slack|eyJ|"
    r"PRIVATE KEY|://|(?i:bearer|basic|aws|secret|token|key|passw|sig=)"
)
_KEY_BODY = re.compile(r"^[A-Za-z0-9+/]{60,76}={0,2}$")
_HARMLESS = re.compile(
    r"(?i)^(?:none|null|true|false|\*+|x{4,}|<[^>]*>|\$\{?\w+\}?|os\.environ.*|\.{3})$"
)
_TOKEN_COUNT = re.compile(r"^[\d.,]+$")


def redact(text: str, counts: Counter[str] | None = None) -> str:
    """`text` with every secret replaced by `<redacted:kind>`; `counts` is raised by kind."""
    if _KEY_BODY.match(text):
        if counts is not None:
            counts["private_key"] += 1
        return "<redacted:private_key>"
    if not _HINT.search(text):
        return text
    for kind, pattern in _COMPILED:
        text = pattern.sub(partial(_replace, kind, counts), text)
    return text


def _replace(kind: str, counts: Counter[str] | None, match: re.Match[str]) -> str:
    whole = match[0]
    if "secret" not in match.re.groupindex:
        secret, start, end = whole, 0, len(whole)
    else:
        secret = match["secret"]
        start, end = match.start("secret") - match.start(), match.end("secret") - match.start()
    if not secret or "<redacted" in secret or _HARMLESS.match(secret) or _TOKEN_COUNT.match(secret):
        return whole
    if counts is not None:
        counts[kind] += 1
    return f"{whole[:start]}<redacted:{kind}>{whole[end:]}"


def scan_patterns() -> tuple[str, ...]:
    """Coarse google-re2 patterns of lines that may hold a secret, for one pass over a whole file."""
    return (
        r"\b(?:AKIA|ASIA|ABIA|ACCA)[0-9A-Z]{16}\b|AIza[0-9A-Za-z_-]{35}",
        r"\b(?:hf|api_org)_[A-Za-z0-9]{20}|\bsk-[A-Za-z0-9_-]{20}|\bgh[pousr]_[A-Za-z0-9]{30}",
        r"github_pat_[A-Za-z0-9_]{30}|glpat-[A-Za-z0-9_-]{20}|xox[abeprs]-[A-Za-z0-9-]{10}",
        r"hooks\.slack\.com/services/|eyJ[A-Za-z0-9_-]{10,}\.eyJ|PRIVATE KEY-----",
        r"(?i)bearer\s+[A-Za-z0-9._~+/-]{12}|authorization[\"']?\s*[:=]\s*[\"']?basic",
        r"://[^\s:/@]{0,100}:[^\s/@]{1,200}@|(?i:AccountKey|SharedAccessKey)=",
        r"(?i)(?:secret|passw(?:or)?d|api_?key|access_?token|auth_?token)[a-z_]*[\"']?\s*[:=]\s*[\"']?[^\s\"']{6}",
    )
