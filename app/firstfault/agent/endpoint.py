"""Is a model configured, where is it, and what may one turn cost? Reading this opens no connection."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from firstfault.errors import UsageError
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression

if TYPE_CHECKING:
    from firstfault.settings import Settings

PUBLIC_URL = "https://api.openai.com/v1"
NAME_VARIABLES = ("FIRSTFAULT_MODEL", "FIRSTFAULT_MODEL_NAME", "OPENAI_MODEL")
URL_VARIABLES = ("FIRSTFAULT_MODEL_URL", "OPENAI_BASE_URL")
KEY_VARIABLES = ("FIRSTFAULT_MODEL_KEY", "OPENAI_API_KEY")


class Structure(StrEnum):
    """How the model is made to answer in the schema: by a tool call, or by the server's grammar."""

    TOOL = "tool"
    SCHEMA = "schema"


class Hidden(StrEnum):
    """Kinds of names that are replaced before anything leaves the machine."""

    HOSTS = "hosts"
    USERS = "users"
    IPS = "ips"
    PATHS = "paths"


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one turn. Tokens are estimated where the server does not count; seconds of wall time."""

    context_tokens: int = 32_768
    answer_tokens: int = 2_048
    turn_tokens: int = 150_000
    steps: int = 10
    silence_s: float = 60.0
    turn_s: float = 240.0
    attempts: int = 4
    tool_s: float = 20.0


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One OpenAI-compatible endpoint and how it is used. The key never enters a prompt or a log."""

    name: str
    url: str = PUBLIC_URL
    key: str = field(default="", repr=False)
    structure: Structure = Structure.TOOL
    hidden: frozenset[Hidden] = frozenset(Hidden)
    limits: Limits = Limits()
    ask_first: bool = True
    reasoning: bool = False
    """It thinks before it answers: no temperature is sent, and its answers may be long."""
    price_in: float = 0.0
    price_out: float = 0.0
    """Prices per million tokens, in whatever currency."""

    @property
    def is_local(self) -> bool:
        """The endpoint runs on this machine, so nothing leaves it."""
        host = urlsplit(self.url).hostname or ""
        return host in ("localhost", "::1") or host.startswith("127.")

    @property
    def needs_consent(self) -> bool:
        """A person must have seen what would leave the machine before the first call."""
        return self.ask_first and not self.is_local


def is_configured(environ: Mapping[str, str] = os.environ) -> bool:
    """A model is named, and there is a key or an address. Naming the model is the opt-in.

    A key alone is not: many shells carry one for other programs, and logs must not follow it.
    """

    def has(names: tuple[str, ...]) -> bool:
        return any(environ.get(n, "").strip() for n in names)

    return has(NAME_VARIABLES) and (has(KEY_VARIABLES) or has(URL_VARIABLES))


def read_endpoint(settings: Settings) -> Endpoint | None:
    """Endpoint of an installation, or None. Raises UsageError for an address that is none."""
    key = settings.model_key.get_secret_value()
    if not settings.model_name or not (settings.model_url or key):
        return None
    url = settings.model_url or PUBLIC_URL
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(f"FIRSTFAULT_MODEL_URL={url}: expected http(s)://host[:port]/v1")
    return Endpoint(
        name=settings.model_name,
        url=url,
        key=key,
        structure=Structure(settings.model_structure),
        hidden=_read_hidden(settings.model_hide),
        limits=Limits(
            context_tokens=settings.model_context,
            answer_tokens=settings.model_answer or (16_384 if _reasons(settings) else 2_048),
            turn_tokens=settings.model_tokens,
            steps=settings.model_steps,
            silence_s=settings.model_silence_s,
            turn_s=settings.model_turn_s,
        ),
        ask_first=settings.model_consent == "ask",
        reasoning=_reasons(settings),
        price_in=settings.model_price_in,
        price_out=settings.model_price_out,
    )


_REASONING = expression(
    r"(?i)^(?:.*/)?(?:o[1-9](?:-|$)|gpt-5|.*(?:reason|think|deepseek-r\d|qwq|gpt-oss))"
)


def _reasons(settings: Settings) -> bool:
    """By setting; else by the names of models that are known to think."""
    if settings.model_reasoning != "auto":
        return settings.model_reasoning == "yes"
    return _REASONING.match(settings.model_name) is not None


def _read_hidden(text: str) -> frozenset[Hidden]:
    names = {n.strip().lower() for n in text.split(",") if n.strip()}
    known = {h.value for h in Hidden}
    if names - known - {"none"}:
        wrong = ", ".join(sorted(names - known))
        raise UsageError(
            f"FIRSTFAULT_MODEL_HIDE: {wrong} is none of {', '.join(sorted(known))}, none"
        )
    return frozenset(Hidden(n) for n in names & known)
