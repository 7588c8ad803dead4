"""Which characters of a line must never leave this machine? Secrets become `<redacted:kind>`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any

from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression, make_encodable
from firstfault_tools.log.secret_shapes import (
    SHAPES,
    compile_linear,
    kind_of_token,
    place_of,
    token_pattern,
)
from firstfault_tools.log.secret_values import (
    Strength,
    Value,
    is_random,
    is_secret,
    is_told_harmless,
    judge_name,
    read_value,
)

_KEYWORD = r"(?:passw|passphrase|passcode|pwd|secret|token|jwt|cred|key|auth|sig|pass|session|sid|salt|hmac|otp|dockerconfigjson)"
_NAMED = r"(?P<name>[\w.-]*" + _KEYWORD + r"[\w-]*)(?P<is>\\*[\"'\]]{0,2}\s*(?::=|=>|[:=]{1,2})\s*)"
_OPTION = (
    r"(?:^|[\s\"'\[,(])--?(?P<name>[\w-]*" + _KEYWORD + r"[\w-]*)(?P<is>[\"']?,?\s+|[\"']\s*,\s*)"
)
_SPACED = r"(?P<name>\b\w*" + _KEYWORD + r"\w*)(?P<is>\s+(?:(?:is|was|set to)\s*:?\s+)?)"
_PAIR = (
    r"\bname\\*[\"']?\s*[:=]\s*\\*[\"']?(?P<name>[\w.-]+)(?P<is>\\*[\"']?[,;]?\s*\\*[\"']?value\\*[\"']?\s*[:=]\s*)"
    r"|\bkey\\*[\"']?\s*=\s*\\*[\"'](?P<name2>[\w.-]+)(?P<is2>\\*[\"']\s+value\s*=\s*)"
)
_NETRC = r"^\s*password\s+(?P<secret>\S{4,200})\s*$"
_AWAITS = (
    r"\bname\\*[\"']?\s*[:=]\s*\\*[\"']?(?P<env>[\w.-]+)\\*[\"']?,?\s*$"
    r"|(?P<name>[\w.-]*" + _KEYWORD + r"[\w-]*)(?:\\*[\"']?\s*[:=]\s*[>|\\-]{0,2}|\s*\\)\s*$"
    r"|\b(?P<asked>password|passphrase|api key|token|hit enter)\b[^\n]{0,80}:\s*$"
)
_GIVEN = r"\bvalue\\*[\"']?\s*[:=]\s*"
_ALONE = r"^\s*(?:\[[^\]]{1,60}\]:?\s*)?(?:- )?\\*[\"']?(?P<value>[^\s\"']{4,})\\*[\"']?[,;]?\s*$"
_TRACKERS = ("wandb", "comet", "neptune", "mlflow", "clearml", "swanlab")
_KEY_BODY = expression(r"^[A-Za-z0-9+/]{60,76}={0,2}$")
_KEY_TAIL = expression(r"^(?:[A-Za-z0-9+/]{40,59}|[A-Za-z0-9+/]{8,59}={1,2})$")
"""The last line of a printed key, which is shorter."""
_KEY_BODY_AT_END = expression(r"(?<=[\s:])[A-Za-z0-9+/]{60,76}={0,2}$")
_PORT = expression(r"\d{1,5}(?:/|$)")


@dataclass(frozen=True, slots=True)
class _Found:
    """A secret: where it stands and of which kind it is."""

    start: int
    end: int
    kind: str


def redact(text: str, counts: Counter[str] | None = None) -> str:
    """`text` with every secret replaced by `<redacted:kind>`; `counts` is raised by kind."""
    text = make_encodable(text)
    if "\n" in text:
        return "\n".join(redact_lines(text.split("\n"), counts))
    if _KEY_BODY.match(text) or _KEY_TAIL.match(text):
        if _is_mixed(text):
            return _hide(text, [_Found(0, len(text), "private_key")], counts)
    elif len(text) > 60 and " " not in text[-60:] and _is_key_body(text):
        body = _KEY_BODY_AT_END.search(text)
        if body is not None:
            found = _Found(body.start(), body.end(), "private_key")
            text = _hide(text, [found], counts)
    if not _may_hold(text):
        return text
    return _hide(text, _merge(found for find in _FINDERS for found in find(text)), counts)


def redact_lines(lines: Iterable[str], counts: Counter[str] | None = None) -> Iterator[str]:
    """Lines that follow one another: a name may stand on one and its value on the next."""
    awaited, in_key = Strength.NONE, False
    for line in map(make_encodable, lines):
        if in_key and "-----" not in line and line.strip():
            yield _hide(line, [_Found(0, len(line), "private_key")], counts)
            continue
        value = _awaited_value(line, awaited)
        if value is not None:
            line = _hide(line, [_Found(value.start, value.end, "password")], counts)
        elif line.strip():
            awaited = _judge_end(line)
        shown = redact(line, counts)
        if value is not None:
            awaited = Strength.NONE
        in_key = "PRIVATE KEY" in line and "-----BEGIN" in line and "-----END" not in line
        yield shown


def redact_field(name: str, text: str) -> str:
    """The text of one field of a structured object: its name counts too."""
    text = make_encodable(text)
    strength = judge_name(name)
    if strength >= Strength.MEDIUM and is_secret(strength, text, Value(0, len(text), True)):
        return f"<redacted:{_kind_of(name)}>"
    return redact(text)


def scan_patterns() -> tuple[str, ...]:
    """Coarse google-re2 patterns of lines that may hold a secret, for one pass over a whole file."""
    return _coarse()


@cache
def _coarse() -> tuple[str, ...]:
    value = r"\\*[\"'\]]{0,2}\s*(?::=|=>|[:=]{1,2})\s*\\*[\"'`]?"
    return (
        token_pattern().replace("?P<secret>", "?:"),
        *(pattern.replace("?P<secret>", "?:") for _, pattern in SHAPES),
        r"PRIVATE KEY(?: BLOCK)?-----",
        r"(?i)(?:passw|pwd|secret|token|key|auth|jwt|cred|pass)[\w-]*(?:\\*[\"']?\s*[:=]\s*[>|\\-]{0,2}|\s*\\)\s*$",
        r"(?i)(?:passw|passphrase|passcode|pwd|pass|secret|private_?-?key|api_?-?key|access_?-?key|[a-z]key|dockerconfigjson)[\w-]*" + value + r"[^\s\"'][^\"'\n]{3}",
        r"(?i)(?:token|jwt|cred|key|auth|sig|session|sid|salt|hmac|otp)[\w-]*" + value + r"[^\s\"']{8}",
        r"(?i)--?[\w-]*(?:passw|passphrase|secret|token|key|auth|pass|pwd|jwt|cred)[\w-]*[\"']?,?\s*[\"']?[^\s\"'-][^\s\"']{3}",
        r"(?i)(?:passw|passphrase|pwd|secret|token|key)\w*\s+(?:(?:is|was|set to)\s*:?\s+)?[\"']?[^\s\"']{4}",
        r"(?i)\bname\\*[\"']?\s*[:=]\s*\\*[\"']?[\w.-]*(?:passw|pwd|secret|token|key|auth|jwt|cred|pass)",
        r"(?i)\b(?:password|passphrase|api key|token|hit enter)\b[^\n]{0,80}:\s*$",
    )  # fmt: skip


_NAME = expression(r"[\w./-]*")
_TELLING = ("pass", "pwd", "secret", "token", "key", "auth", "jwt", "cred")
LEAST_TOKEN = 15
"""Characters of the shortest key that is known by how it begins."""


def _may_hold(text: str) -> bool:
    if len(text) < LEAST_TOKEN and _NAME.fullmatch(text):
        # the name of a file: too short for a key, and nothing else is a secret without a word before it
        lower = text.lower()
        return any(word in lower for word in _TELLING) and _gate().search(text) is not None
    return _gate().search(text) is not None


@cache
def _gate() -> Any:
    return compile_linear("|".join(f"(?:{p})" for p in _coarse()))


def _find_tokens(text: str) -> Iterator[_Found]:
    for match in compile_linear(token_pattern()).finditer(text):
        if kind := kind_of_token(match["secret"]):
            yield _Found(*place_of(match, "secret"), kind)


def _find_shapes(text: str) -> Iterator[_Found]:
    for kind, pattern in SHAPES:
        for match in compile_linear(pattern).finditer(text):
            start, end = place_of(match, "secret")
            if not _is_word(kind, text[start:end]):
                yield _Found(start, end, kind)


def _is_word(kind: str, secret: str) -> bool:
    """What fills the shape and is no secret: a port, a word of a sentence, a placeholder."""
    if "<redacted" in secret:
        return True
    if kind == "url_password":
        return (_PORT.match(secret) is not None and "/" in secret) or _is_placeholder(secret)
    if kind in ("basic_auth", "bearer"):
        return (
            not any(c.isdigit() or c in "=+/." for c in secret) and len(secret) < 24
        ) or _is_placeholder(secret)
    return _is_placeholder(secret)


def _is_placeholder(secret: str) -> bool:
    return not is_secret(Strength.STRONG, secret, Value(0, len(secret), True))


def _find_named(text: str) -> Iterator[_Found]:
    for pattern, spaced in ((_PAIR, False), (_NAMED, False), (_OPTION, True), (_SPACED, True)):
        last: Value | None = None
        for match in compile_linear(pattern, True).finditer(text):
            found = match.groupdict()
            more = "" if found["name"] is not None else "2"
            name, sign = found[f"name{more}"], found[f"is{more}"]
            end = place_of(match, f"is{more}")[1]
            strength = judge_name(name)
            if strength and last is not None and not last.quoted and last.start < end < last.end:
                value: Value | None = Value(end, last.end, False)  # a long chain is read once
            else:
                value = read_value(text, end) if strength else None
            last = value or last
            if value is None or not is_secret(strength, text, value, ":" in sign or spaced):
                continue
            at = place_of(match, f"name{more}")[0]
            if strength is Strength.WEAK and is_told_harmless(text[max(0, at - 24) : at]):
                continue
            said = text[value.start : value.end]
            if not _is_ordinary(pattern, name, sign, strength, said):
                yield _Found(value.start, value.end, _kind_of(name))


def _is_ordinary(pattern: str, name: str, sign: str, strength: Strength, said: str) -> bool:
    """What may stand so behind such a name in any log: a word, another option, a count of tokens."""
    if pattern is _SPACED and not _is_made_up(said, bool(sign.strip())):
        return True
    if pattern is _OPTION and (
        said.startswith("-") or (strength < Strength.STRONG and not is_random(said))
    ):
        return True
    return "token" in name.lower() and strength is Strength.STRONG and said.isdigit()


def _find_netrc(text: str) -> Iterator[_Found]:
    line = compile_linear(_NETRC).search(text)
    if line is not None:
        start, end = place_of(line, "secret")
        if is_secret(Strength.STRONG, text, Value(start, end, False)):
            yield _Found(start, end, "password")


def _is_made_up(said: str, told: bool) -> bool:
    """What stands behind a bare name: random, or, where a verb tells of it, at least with a digit."""
    if told:
        return len(said) >= 6 and any(map(str.isdigit, said)) and any(map(str.isalpha, said))
    return len(said) >= 20 and is_random(said)


_FINDERS: tuple[Callable[[str], Iterator[_Found]], ...] = (
    _find_tokens,
    _find_shapes,
    _find_named,
    _find_netrc,
)


def _kind_of(name: str) -> str:
    lower = name.lower()
    if any(t in lower for t in _TRACKERS):
        return "tracker_key"
    if "aws" in lower and ("secret" in lower or "session" in lower):
        return "aws_secret_key"
    if lower.startswith(("x-amz", "x-goog")):
        return "signed_url"
    if lower in ("accountkey", "sharedaccesskey", "sig") or "azure" in lower:
        return "azure_key"
    return "basic_auth" if lower == "auth" else "password"


def _judge_end(line: str) -> Strength:
    """Strength of a name at the end of a line whose value is still to come."""
    found = compile_linear(_AWAITS, True).search(line)
    if found is None:
        return Strength.NONE
    if found["asked"]:
        return Strength.MEDIUM
    return judge_name(found["env"] or found["name"] or "")


def _awaited_value(line: str, strength: Strength) -> Value | None:
    if strength is Strength.NONE:
        return None
    given = compile_linear(_GIVEN, True).search(line)
    if given is not None:
        value = read_value(line, given.end())
        strength = max(strength, Strength.MEDIUM)
    else:
        alone = compile_linear(_ALONE).search(line)
        value = Value(*place_of(alone, "value"), False) if alone else None
        strength = min(strength, Strength.MEDIUM)
    return value if value is not None and is_secret(strength, line, value) else None


def _merge(found: Iterable[_Found]) -> list[_Found]:
    """In order of place; where some meet, the one found first gives the kind of all."""
    out: list[_Found] = []
    first = 0
    for order, one in sorted(enumerate(found), key=lambda o: o[1].start):
        if out and one.start < out[-1].end:
            met = out.pop()
            kind = one.kind if order < first else met.kind
            one = _Found(met.start, max(met.end, one.end), kind)
            order = min(order, first)
        first = order
        out.append(one)
    return out


def _hide(text: str, found: Iterable[_Found], counts: Counter[str] | None) -> str:
    pieces, at = [], 0
    for one in found:
        if counts is not None:
            counts[one.kind] += 1
        pieces += [text[at : one.start], f"<redacted:{one.kind}>"]
        at = one.end
    return "".join([*pieces, text[at:]])


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
