"""Which characters of a line must never leave this machine? Secrets become `<redacted:kind>`."""

from __future__ import annotations

import re
from collections import Counter
from functools import partial

from firstfault_tools.expressions import expression

# A value after its name: quotes may be escaped, as in a JSON text inside a JSON text.
_IS = r"\\{0,3}[\"']?\s{0,40}[:=]\s{0,40}\\{0,3}[\"']?"
_NAMED = (
    r"(?:[_-]|(?<=[\"']))pwd(?![\"']?\s{0,9}[:=]\s{0,9}[\"']?[/.~])|passw(?:or)?d|passwd|passphrase|client[_-]?secret|secret(?:[_-]?(?:access[_-]?)?key)?"
    r"|api[_-]?key|access[_-]?key|private[_-]?key"
    r"|(?:access|auth|api|hf|hub|refresh|session|id|bot|github|gitlab|ngc)[_-]?token"
)

# kind -> pattern; where a pattern has a group `secret`, only that part is replaced. Every repetition
# that can start at many places of a line is bounded, so that no line costs more than linear time.
_PATTERNS: tuple[tuple[str, str], ...] = (
    ("aws_access_key", r"\b(?:AKIA|ASIA|ABIA|ACCA)[0-9A-Z]{16}\b"),
    (
        "aws_secret_key",
        r"(?i)aws[_-]?(?:secret|session)[a-z_-]{0,40}(?:" + _IS + r"|\s{1,40})"
        r"(?P<secret>[A-Za-z0-9/+=]{30,2000})",
    ),
    ("google_api_key", r"\bAIza[0-9A-Za-z_-]{35}\b"),
    (
        "azure_key",
        r"(?i)\b(?:AccountKey|SharedAccessKey|sig)=(?P<secret>[A-Za-z0-9+/%]{20,200}={0,2})",
    ),
    (
        "signed_url",
        r"(?i)\bX-(?:Amz|Goog)-(?:Signature|Security-Token|Credential)=(?P<secret>[^&\s\"'<]{8,4000})",
    ),
    ("huggingface_token", r"\b(?:hf|api_org)_[A-Za-z0-9]{20,}\b"),
    ("openai_key", r"\bsk-(?:proj-|ant-|or-)?[A-Za-z0-9_-]{20,}\b"),
    ("github_token", r"\b(?:gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{30,})\b"),
    ("gitlab_token", r"\bglpat-[A-Za-z0-9_-]{20,}"),
    ("slack_token", r"\b(?:xox[abeprs]|xapp)-[A-Za-z0-9-]{10,}"),
    ("slack_webhook", r"hooks\.slack\.com/services/(?P<secret>[A-Za-z0-9/]{20,})"),
    (
        "service_token",
        r"\b(?:nvapi-[A-Za-z0-9_-]{20,}|dapi[0-9a-f]{32}\b|npm_[A-Za-z0-9]{36}\b"
        r"|pypi-[A-Za-z0-9_-]{50,}|SG\.[A-Za-z0-9_-]{16,40}\.[A-Za-z0-9_-]{30,60}"
        r"|[sr]k_live_[A-Za-z0-9]{16,}|hv[sb]\.[A-Za-z0-9_-]{20,}|dop_v1_[0-9a-f]{40,})",
    ),
    ("service_token", r"discord(?:app)?\.com/api/webhooks/(?P<secret>\d{5,30}/[\w-]{30,200})"),
    (
        "tracker_key",
        r"(?i)\b(?:wandb|comet|neptune|mlflow|clearml|swanlab)[a-z_]*(?:key|token|secret|password)"
        + _IS
        + r"(?P<secret>[A-Za-z0-9_.+/=-]{16,})",
    ),
    (
        "tracker_key",
        r"\bwandb(?:_v1_|\s{1,9}login\s{1,9}(?:--[\w-]{1,40}\s{1,9}){0,4})(?P<secret>\w{20,200})",
    ),
    (
        "jwt",
        r"\beyJ[A-Za-z0-9_-]{10,2000}\.eyJ[A-Za-z0-9_-]{10,4000}\.[A-Za-z0-9_-]{5,}",
    ),
    ("bearer", r"(?i)\bbearer\s{1,40}(?P<secret>[A-Za-z0-9._~+/-]{12,}=*)"),
    (
        "basic_auth",
        r"(?i)\bauthorization" + _IS + r"(?:basic|token|apikey|negotiate)\s{1,40}"
        r"(?P<secret>[A-Za-z0-9+/._~-]{8,}=*)",
    ),
    (
        "basic_auth",
        r"[\"']auth\\{0,3}[\"']\s{0,9}:\s{0,9}\\{0,3}[\"'](?P<secret>[A-Za-z0-9+/]{12,}=*)",
    ),
    (
        "cookie",
        r"(?i)\b(?:set-)?cookie\\{0,3}[\"']?:\s{0,9}[\"']?(?P<secret>[^\s=;,]{1,100}=.{4,4000})",
    ),
    ("url_password", r"\b[a-z][a-z0-9+.-]{1,20}://[^\s:/@<]{0,100}:(?P<secret>[^\s/]{1,200})@"),
    ("url_password", r"\b[a-z][a-z0-9+.-]{1,20}://(?P<secret>[A-Za-z0-9_-]{20,200})@"),
    ("private_key", r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----(?P<secret>.*)"),
    (
        "password",
        r"(?i)(?:" + _NAMED + r")\\{0,3}[\"']?\s{0,40}[:=]\s{0,40}"
        r"\\{0,3}(?P<quote>[\"'])(?P<secret>(?!<redacted|-----BEGIN)(?:(?!\\{0,3}(?P=quote)).){4,200})",
    ),
    (
        "password",
        r"(?i)\b[\w.-]{0,40}(?:"
        + _NAMED
        + r")"
        + _IS
        + r"(?P<secret>(?!<redacted|-----BEGIN)[^\s\"',;&)}\]]{6,200})",
    ),
    (
        "password",
        r"(?i)(?<![\w-])--?(?:[a-z0-9]{1,20}[_-]){0,3}(?:passw(?:or)?d|passwd|secret|api[_-]?key)"
        r"\s{1,40}[\"']?(?P<secret>(?!<redacted|-----BEGIN)[^\s\"'-][^\s\"']{5,200})",
    ),
    (
        "password",
        r"\b(?:sshpass|(?:docker|podman|nerdctl)\s{1,9}login)\b[^\n]{0,200}?\s-p\s{0,9}[\"']?(?P<secret>[^\s\"'-][^\s\"']{3,200})",
    ),
    (
        "password",
        r"\b(?:curl|wget)\b[^\n]{0,300}?\s(?:-u|--user|--proxy-user)[ =]{0,9}[\"']?[^\s:\"']{1,100}:(?P<secret>[^\s\"']{4,200})",
    ),
    (
        "password",
        r"\blogin\s{1,9}\S{1,100}\s{1,9}password\s{1,9}(?P<secret>\S{4,200})",
    ),
    (
        "password",
        r"(?i)(?:(?<![\w-])--?(?:(?:hf|hub|auth|access|api|use-auth)[_-])?token(?:\s{1,40}|=)|(?<![\w-])token"
        + _IS
        + r")[\"']?"
        r"(?P<secret>(?=\S{0,60}\d)(?=\S{0,60}[A-Za-z])[A-Za-z0-9._~+/=-]{16,400})",
    ),
)
_COMPILED = tuple((kind, expression(pattern)) for kind, pattern in _PATTERNS)
# A line that holds none of these, in lower case, holds no secret of a kind above. Substrings are
# looked for many times faster than one pattern of alternatives.
_HINTS = (
    "akia", "asia", "abia", "acca", "aiza", "hf_", "api_org_", "sk-", "ghp_", "gho_", "ghu_", "ghs_",
    "ghr_", "github_pat", "glpat-", "xox", "xapp-", "hooks.slack", "discord", "eyj", "nvapi-", "dapi",
    "npm_", "pypi-", "sg.", "k_live_", "hvs.", "hvb.", "dop_v1_", "wandb", "private key", "://",
    "bearer", "auth", "cookie", "aws", "signature", "credential", "secret", "token", "key", "passw",
    "passphrase", "sig=", "pwd", "sshpass", "login", "curl", "wget",
)  # fmt: skip
_KEY_BODY = expression(r"^[A-Za-z0-9+/]{60,76}={0,2}$")
_KEY_TAIL = expression(r"^(?:[A-Za-z0-9+/]{40,59}|[A-Za-z0-9+/]{8,59}={1,2})$")
"""The last line of a printed key, which is shorter."""
_KEY_BODY_AT_END = expression(r"(?<=[\s:])[A-Za-z0-9+/]{60,76}={0,2}$")
_HARMLESS = expression(
    r"(?i)^(?:none|null|true|false|\*+|x{4,}|<[^>]*>|\$\{?\w+\}?|os\.environ.*|\.{3})$"
)
_TOKEN_COUNT = expression(r"^[\d.,]+$")


def redact(text: str, counts: Counter[str] | None = None) -> str:
    """`text` with every secret replaced by `<redacted:kind>`; `counts` is raised by kind."""
    if _KEY_BODY.match(text) or (_KEY_TAIL.match(text) and _is_mixed(text)):
        if counts is not None:
            counts["private_key"] += 1
        return "<redacted:private_key>"
    if len(text) > 60 and " " not in text[-60:] and _is_key_body(text):
        if counts is not None:
            counts["private_key"] += 1
        text = _KEY_BODY_AT_END.sub("<redacted:private_key>", text)
    lower = text.lower()
    if not any(hint in lower for hint in _HINTS):
        return text
    for kind, pattern in _COMPILED:
        text = pattern.sub(partial(_replace, kind, counts), text)
    return text


def _is_key_body(text: str) -> bool:
    """A line of a printed private key behind a prefix, such as a rank: base64, no path, no digest."""
    match = _KEY_BODY_AT_END.search(text)
    if match is None:
        return False
    body = match[0]
    return _is_mixed(body) and not body.startswith("/") and body.count("/") <= 4


def _is_mixed(body: str) -> bool:
    """Small and capital letters and digits, as in base64 and no digest."""
    return all(any(map(test, body)) for test in (str.islower, str.isupper, str.isdigit))


def _replace(kind: str, counts: Counter[str] | None, match: re.Match[str]) -> str:
    whole = match[0]
    if "secret" not in match.re.groupindex:
        secret, start, end = whole, 0, len(whole)
    else:
        secret = match["secret"]
        start, end = match.start("secret") - match.start(), match.end("secret") - match.start()
    if not secret or "<redacted" in secret or _HARMLESS.match(secret):
        return whole
    if "token" in whole.lower() and _TOKEN_COUNT.match(secret):
        return whole
    if counts is not None:
        counts[kind] += 1
    return f"{whole[:start]}<redacted:{kind}>{whole[end:]}"


def scan_patterns() -> tuple[str, ...]:
    """Coarse google-re2 patterns of lines that may hold a secret, for one pass over a whole file."""
    return (
        r"\b(?:AKIA|ASIA|ABIA|ACCA)[0-9A-Z]{16}\b|AIza[0-9A-Za-z_-]{35}",
        r"\b(?:hf|api_org)_[A-Za-z0-9]{20}|\bsk-[A-Za-z0-9_-]{20}|\bgh[pousr]_[A-Za-z0-9]{30}",
        r"github_pat_[A-Za-z0-9_]{30}|glpat-[A-Za-z0-9_-]{20}|(?:xox[abeprs]|xapp)-[A-Za-z0-9-]{10}",
        r"\b(?:nvapi-[A-Za-z0-9_-]{20}|dapi[0-9a-f]{32}|npm_[A-Za-z0-9]{36}|pypi-[A-Za-z0-9_-]{50})",
        r"\b(?:[sr]k_live_[A-Za-z0-9]{16}|hv[sb]\.[A-Za-z0-9_-]{20}|dop_v1_[0-9a-f]{40}|SG\.[\w-]{16})",
        r"discord(?:app)?\.com/api/webhooks/|\bwandb(?:_v1_\w{20}|\s+login\s)",
        r"(?i)\bX-(?:Amz|Goog)-(?:Signature|Security-Token|Credential)=|\bcookie[\"']?:",
        r"hooks\.slack\.com/services/|eyJ[A-Za-z0-9_-]{10,}\.eyJ|PRIVATE KEY-----",
        r"(?i)bearer\s+[A-Za-z0-9._~+/-]{12}|authorization[\"']?\s*[:=]|[\"']auth\\*[\"']\s*:",
        r"://[^\s:/@]{0,100}:[^\s/@]{1,200}@|://[A-Za-z0-9_-]{20,200}@|(?i:AccountKey|SharedAccessKey|sig)=",
        r"(?i)(?:secret|passw(?:or)?d|passphrase|(?:api|access|private)[_-]?key"
        r"|(?:access|auth|api|hf|hub|refresh|session|id|bot|github|gitlab|ngc)[_-]?token)[a-z_-]*"
        r"\\*[\"']?\s*[:=]\s*\\*[\"']?[^\s\"']{4}",
        r"(?i)aws[_-]?(?:secret|session)[a-z_-]*[\"'\s:=]+[a-z0-9/+=]{30}",
        r"(?i)--?[a-z_-]*(?:passw(?:or)?d|token|api[_-]?key|secret)\s+[\"']?[^\s\"'-][^\s\"']{5}",
        r"\b(?:sshpass|login)\b.{0,200}\s-p|\blogin\s.{1,100}\spassword\s|\b(?:curl|wget)\b.*\s(?:-u|--user|--proxy-user)[ =]",
        r"(?i)(?:[_-]|[\"'])pwd[\"']?\s*[:=]\s*[\"']?[^\s\"'/.~]{4}",
        r"(?i)\btoken\\*[\"']?\s*[:=]\s*\\*[\"']?[a-z0-9._~+/=-]{16}",
    )
