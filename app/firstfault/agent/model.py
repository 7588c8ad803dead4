"""What is a model to the rest of the agent? One protocol; the endpoint is one way to fill it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from firstfault.agent.endpoint import PUBLIC_URL, Endpoint
from firstfault_tools.dataclass import dataclass

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel


class Model(Protocol):
    """A chat model that streams and calls tools, and the endpoint's limits and habits."""

    @property
    def endpoint(self) -> Endpoint: ...

    def open(self) -> BaseChatModel: ...


@dataclass(frozen=True, slots=True)
class EndpointModel:
    """Any OpenAI-compatible endpoint: OpenAI, Azure by base URL, vLLM, Ollama, llama.cpp."""

    endpoint: Endpoint

    def open(self) -> BaseChatModel:
        """Client of the endpoint; connects at the first call only."""
        import httpx
        from langchain_openai import ChatOpenAI
        from pydantic import SecretStr

        limits = self.endpoint.limits
        # the public service refuses the old name of the limit, other servers know no other
        public = self.endpoint.url.startswith(PUBLIC_URL) or ".azure.com" in self.endpoint.url
        return ChatOpenAI(
            model=self.endpoint.name,
            base_url=self.endpoint.url,
            # servers of one's own take any key, and the client refuses an empty one
            api_key=SecretStr(self.endpoint.key or "none"),
            timeout=httpx.Timeout(limits.silence_s, connect=min(10.0, limits.silence_s)),
            max_retries=0,
            temperature=None if self.endpoint.reasoning else 0.0,
            max_completion_tokens=limits.answer_tokens,
            extra_body=None if public else {"max_tokens": limits.answer_tokens},
            streaming=True,
            stream_usage=True,
            use_responses_api=False,
        )
