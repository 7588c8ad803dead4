"""Is the endpoint fit for the agent? Key, model, context size, tool calling, structured output.

Sends a few words of its own and no evidence. For `firstfault doctor`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from firstfault.agent.endpoint import Endpoint, Structure
from firstfault.agent.failures import explain_failure, is_of_endpoint
from firstfault.agent.model import EndpointModel
from firstfault_tools.dataclass import dataclass

CHECK_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class EndpointCheck:
    """One property. ok None: the server does not say."""

    name: str
    ok: bool | None
    detail: str
    advice: str = ""


def check_endpoint(endpoint: Endpoint) -> Iterator[EndpointCheck]:
    """The checks, one after the other; the first that makes the rest pointless ends them."""
    limits = replace(
        endpoint.limits, silence_s=min(CHECK_SECONDS, endpoint.limits.silence_s), answer_tokens=128
    )
    endpoint = replace(endpoint, limits=limits)
    listed, problem = _try(lambda: _list_models(endpoint), endpoint)
    if problem:
        yield EndpointCheck("key and address", False, problem)
        return
    yield EndpointCheck("key and address", True, endpoint.url)
    yield _check_name(endpoint, listed or {})
    yield _check_context(endpoint, listed or {})
    plain, problem = _try(lambda: _ask_plainly(endpoint), endpoint)
    yield EndpointCheck("answer", not problem and bool(plain), problem or f"{plain} characters")
    if problem:
        return
    called, problem = _try(lambda: _ask_for_a_call(endpoint), endpoint)
    yield EndpointCheck(
        "tool calling",
        not problem and bool(called),
        problem or ("calls a tool it is told to call" if called else "answers in text instead"),
        ""
        if called
        else "serve the model with tool calling on, or set FIRSTFAULT_MODEL_STRUCTURE=schema",
    )
    formed, problem = _try(lambda: _ask_in_schema(endpoint), endpoint)
    needed = endpoint.structure is Structure.SCHEMA
    yield EndpointCheck(
        "structured output",
        (not problem and bool(formed)) or (None if not needed and called else False),
        problem or ("keeps to a schema" if formed else "does not keep to a schema"),
        ""
        if formed
        else "use a server with json_schema support, or FIRSTFAULT_MODEL_STRUCTURE=tool",
    )


def list_names(endpoint: Endpoint) -> tuple[tuple[str, ...], str]:
    """Names of the models that the endpoint lists, and the problem where it does not."""
    seconds = min(CHECK_SECONDS, endpoint.limits.silence_s)
    endpoint = replace(endpoint, limits=replace(endpoint.limits, silence_s=seconds))
    listed, problem = _try(lambda: _list_models(endpoint), endpoint)
    return tuple(sorted(listed or {})), problem


def _try(call: Callable[[], Any], endpoint: Endpoint) -> tuple[Any, str]:
    try:
        return call(), ""
    except Exception as error:
        if not is_of_endpoint(error):
            raise
        return None, explain_failure(error, endpoint)


def _list_models(endpoint: Endpoint) -> Mapping[str, Mapping[str, Any]]:
    import openai

    client = openai.OpenAI(
        base_url=endpoint.url, api_key=endpoint.key or "none", max_retries=0, timeout=endpoint.limits.silence_s
    )  # fmt: skip
    try:
        rows = [m.model_dump() for m in client.models.list().data]
    except openai.NotFoundError:
        return {}
    return {str(r["id"]): r for r in rows}


def _check_name(endpoint: Endpoint, listed: Mapping[str, Any]) -> EndpointCheck:
    if not listed:
        return EndpointCheck("model", None, "the server lists no models")
    if endpoint.name in listed:
        return EndpointCheck("model", True, endpoint.name)
    names = ", ".join(sorted(listed)[:8])
    return EndpointCheck(
        "model", False, f"{endpoint.name} is not among {names}", "check FIRSTFAULT_MODEL"
    )


def _check_context(endpoint: Endpoint, listed: Mapping[str, Mapping[str, Any]]) -> EndpointCheck:
    row = listed.get(endpoint.name) or {}
    meta = row.get("meta") or {}
    said = (
        row.get("max_model_len")
        or row.get("context_length")
        or meta.get("n_ctx")
        or meta.get("n_ctx_train")
    )
    wanted = endpoint.limits.context_tokens
    if not isinstance(said, int):
        return EndpointCheck(
            "context size", None, f"not said by the server; {wanted} tokens are assumed"
        )
    if said < wanted:
        advice = f"set FIRSTFAULT_MODEL_CONTEXT={said}"
        return EndpointCheck("context size", False, f"{said} tokens, {wanted} are assumed", advice)
    return EndpointCheck("context size", True, f"{said} tokens, {wanted} are used")


def _ask_plainly(endpoint: Endpoint) -> int:
    answer = EndpointModel(endpoint).open().invoke("Say: ready")
    return len(str(answer.content)) + len(answer.tool_calls)


def _ask_for_a_call(endpoint: Endpoint) -> bool:
    from langchain_core.tools import tool

    @tool
    def read_rank(rank: int) -> str:
        """Read the log of one rank."""
        return str(rank)

    model = EndpointModel(endpoint).open().bind_tools([read_rank], tool_choice="any")
    answer: Any = model.invoke("Read the log of rank 3 with the tool read_rank.")
    return any(c["name"] == "read_rank" for c in answer.tool_calls)


def _ask_in_schema(endpoint: Endpoint) -> bool:
    from pydantic import BaseModel, Field

    class Rank(BaseModel):
        """A rank."""

        name: str = Field(max_length=20)

    model = EndpointModel(endpoint).open().with_structured_output(Rank, method="json_schema")
    return isinstance(model.invoke("The rank is called rank3. Fill the schema."), Rank)
