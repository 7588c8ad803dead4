"""Why did the model not answer, and is it worth trying again? Errors become one sentence each."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from firstfault.agent.endpoint import Endpoint
from firstfault.errors import ModelUnavailable

T = TypeVar("T")
_OF_SCHEMA = (
    "StructuredOutputValidationError",
    "MultipleStructuredOutputsError",
    "StructuredOutputError",
    "ValidationError",
)
"""Errors of the libraries when an answer is none in the schema; named, since importing them takes long."""
MAX_WAIT_S = 20.0
_PARAMETERS = ("temperature", "max_tokens", "max_completion_tokens", "stream_options", "tool_choice", "parallel_tool_calls", "response_format", "reasoning_effort")  # fmt: skip


class AnswerUnusable(ModelUnavailable):
    """The endpoint answered, and the answer is none in the schema."""


class EndpointAway(ModelUnavailable):
    """Nobody answered, or nobody may ask: that tells nothing of the model."""


class TurnStopped(ModelUnavailable):
    """The person stopped the turn."""


class Deadline:
    """Wall time of one turn."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._end = clock() + seconds
        self.seconds = seconds

    def begin(self) -> None:
        """Count from now."""
        self._end = self._clock() + self.seconds

    @property
    def left_s(self) -> float:
        return self._end - self._clock()

    def check(self) -> None:
        """Raise ModelUnavailable when the time is over."""
        if self.left_s <= 0:
            raise ModelUnavailable(
                f"the model took more than {self.seconds:g} s for one turn; the deterministic answer "
                "stands. Raise FIRSTFAULT_MODEL_TURN_S for a slow model."
            )


def is_transient(error: BaseException) -> bool:
    """Trying the same call again may help."""
    import httpx
    import openai

    if isinstance(error, openai.APIStatusError):
        return error.status_code in (408, 409, 425, 429) or error.status_code >= 500
    return isinstance(error, (openai.APIConnectionError, httpx.TransportError))


def is_of_endpoint(error: BaseException) -> bool:
    """The error comes from the endpoint or the way to it, not from our own code."""
    import json

    import httpx
    import openai
    from pydantic import ValidationError

    known = (openai.OpenAIError, httpx.HTTPError, json.JSONDecodeError, ValidationError)
    if isinstance(error, known) or type(error).__name__ in _OF_SCHEMA:
        return True
    # the client library raises these when a reply lacks the fields of its protocol
    return isinstance(
        error, (KeyError, TypeError, ValueError, AttributeError, IndexError)
    ) and _in_client(error)


def _in_client(error: BaseException) -> bool:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = trace.tb_frame.f_globals.get("__name__", "") if trace is not None else ""
    return place.split(".")[0] in (
        "langchain_openai",
        "langchain_core",
        "openai",
        "httpx",
        "langchain",
        "json",
    )


def call_with_retry(
    call: Callable[[], T],
    endpoint: Endpoint,
    deadline: Deadline,
    sleep: Callable[[float], None] = time.sleep,
) -> T:
    """Result of `call`; transient failures are repeated with growing pauses, within the deadline.

    Raises ModelUnavailable with what happened and what to do.
    """
    import tenacity

    def wait(state: tenacity.RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome is not None else None
        asked = _asked_wait(error)
        grown = min(0.5 * 2 ** (state.attempt_number - 1), 8.0) * random.uniform(0.75, 1.25)
        return float(min(max(asked, grown), MAX_WAIT_S, max(deadline.left_s, 0.0)))

    def stop(state: tenacity.RetryCallState) -> bool:
        return state.attempt_number >= endpoint.limits.attempts or deadline.left_s <= 0

    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception(is_transient),
        wait=wait,
        stop=stop,
        sleep=sleep,
        reraise=True,
    )
    with naming_failures(endpoint):
        return retrying(call)


@contextmanager
def naming_failures(endpoint: Endpoint) -> Iterator[None]:
    """What the endpoint raises inside becomes a ModelUnavailable with what to do; other errors stay as they are."""
    try:
        yield
    except ModelUnavailable:
        raise
    except Exception as error:
        if not is_of_endpoint(error):
            raise
        raise make_failure(error, endpoint) from error


def refused_parameter(error: BaseException) -> str:
    """Name of the parameter of a request that the endpoint says it does not take; '' for other errors."""
    body = getattr(error, "body", None)
    inner = body.get("error", body) if isinstance(body, dict) else {}
    named = str(inner.get("param") or "") if isinstance(inner, dict) else ""
    if (
        named
        and "." not in named
        and "[" not in named
        and named not in ("messages", "tools", "model")
    ):
        return named
    said = str(error)
    found = next((n for n in _PARAMETERS if n in said), "")
    return (
        found
        if re.search(r"(?i)unsupported|not support|unrecognized|unknown|unexpected", said)
        else ""
    )


def _asked_wait(error: BaseException | None) -> float:
    response = getattr(error, "response", None)
    try:
        return float(response.headers.get("retry-after", 0)) if response is not None else 0.0
    except ValueError:
        return 0.0


def make_failure(error: BaseException, endpoint: Endpoint) -> ModelUnavailable:
    """What is raised for an error of the endpoint."""
    kind = EndpointAway if _is_away(error) else ModelUnavailable
    return kind(explain_failure(error, endpoint))


def _is_away(error: BaseException) -> bool:
    import httpx
    import openai

    if isinstance(error, (openai.APITimeoutError, httpx.TimeoutException)):
        return False  # it was there, and too slow
    away = (
        openai.AuthenticationError, openai.PermissionDeniedError, openai.NotFoundError, openai.RateLimitError,
        openai.InternalServerError, openai.APIConnectionError, httpx.TransportError,
    )  # fmt: skip
    return isinstance(error, away)


def explain_failure(error: BaseException, endpoint: Endpoint) -> str:
    """One sentence: what happened at the endpoint and what to do. Holds no key and no prompt."""
    import httpx
    import openai

    limits = endpoint.limits
    silent = (
        f"was silent for {limits.silence_s:g} s; try again, or raise FIRSTFAULT_MODEL_SILENCE_S"
    )
    status = getattr(error, "status_code", "")
    by_kind: tuple[tuple[type[BaseException], str], ...] = (
        (openai.APITimeoutError, silent),
        (httpx.TimeoutException, silent),
        (openai.LengthFinishReasonError, "was cut off before its answer was complete; serve it with a longer limit on answers"),
        (openai.AuthenticationError, "refuses the key (401); check OPENAI_API_KEY"),
        (openai.PermissionDeniedError, "refuses access (403); check the key's rights"),
        (openai.NotFoundError, "does not exist (404); check FIRSTFAULT_MODEL and the /v1 at the end of the address"),
        (openai.RateLimitError, f"is over its limit (429) after {limits.attempts} attempts; wait, or check the quota"),
        (openai.BadRequestError, _explain_refusal(error)),
        (openai.APIStatusError, f"failed ({status}) {limits.attempts} times; look at the server"),
        (openai.APIConnectionError, "cannot be reached or broke off; check that the server runs and the address"),
        (httpx.TransportError, "cannot be reached or broke off; check that the server runs and the address"),
    )  # fmt: skip
    words = f"sent something that is no answer ({type(error).__name__}); check that it speaks the OpenAI protocol"
    if type(error).__name__ in _OF_SCHEMA:
        words = "did not answer in the schema; the deterministic answer stands"
    told = next((said for kind, said in by_kind if isinstance(error, kind)), words)
    return f"{endpoint.name} at {endpoint.url} {told}"


def _explain_refusal(error: BaseException) -> str:
    if named := refused_parameter(error):
        return f"refuses the setting {named} (400); see FIRSTFAULT_MODEL_REASONING and FIRSTFAULT_MODEL_ANSWER in the README"
    return "does not accept the request (400): too long for its context, or it cannot call tools; set FIRSTFAULT_MODEL_CONTEXT, or FIRSTFAULT_MODEL_STRUCTURE=schema"
