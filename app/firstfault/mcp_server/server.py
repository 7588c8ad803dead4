"""How are the tools served? One low-level MCP server on standard input and output."""

from __future__ import annotations

import logging
from typing import Any

from firstfault import __version__
from firstfault.errors import FirstfaultError
from firstfault.incidents.plain import redact_plain, to_plain
from firstfault.mcp_server.bounds import write_bounded
from firstfault.mcp_server.desk import Desk
from firstfault.mcp_server.toolset import check_arguments, offer_tools
from firstfault.settings import Settings
from firstfault_tools.errors import ToolError
from firstfault_tools.log.secrets import redact

log = logging.getLogger(__name__)
INSTRUCTIONS = (
    "Tools that find the first fault of a distributed training run. They start no command and change no file; "
    "`plan_experiment` with store and `record_trial` write on Firstfault's own record. Call `diagnose` first with "
    "everything there is; quote its citations with file and line; look around a cited line with `window`. "
    "A verdict `unknown` means: collect what `next_artefacts` names. Never guess beyond the citations."
)

RECORDING = frozenset({"plan_experiment", "record_trial"})
"""Tools that may write on Firstfault's own record."""


def make_server(desk: Desk) -> Any:
    """Server over one desk."""
    import anyio
    from mcp import types
    from mcp.server.lowlevel import Server

    offers = offer_tools(desk)

    def hint(name: str) -> types.ToolAnnotations:
        reads = name not in RECORDING
        return types.ToolAnnotations(
            read_only_hint=reads,
            destructive_hint=False,
            idempotent_hint=reads,
            open_world_hint=False,
        )

    def answer(name: str, arguments: dict[str, Any]) -> tuple[str, bool]:
        offer = offers.get(name)
        if offer is None:
            return f"no tool {name!r}; there are: {', '.join(offers)}", True
        try:
            check_arguments(offer, arguments)
            return write_bounded(redact_plain(to_plain(offer.run(**arguments)))), False
        except (FirstfaultError, ToolError) as error:
            return redact(str(error)), True
        except (
            Exception
        ) as error:  # tool runner border: the client gets a message, the server lives
            log.exception("tool %s failed", name)
            return f"{name} failed: {error!r}. Report this with the server's log.", True

    async def list_tools(_context: Any, _parameters: Any) -> types.ListToolsResult:
        tools = [
            types.Tool(
                name=o.name,
                description=o.summary,
                input_schema=dict(o.schema),
                annotations=hint(o.name),
            )
            for o in offers.values()
        ]
        return types.ListToolsResult(tools=tools)

    async def call_tool(
        _context: Any, parameters: types.CallToolRequestParams
    ) -> types.CallToolResult:
        arguments = dict(parameters.arguments or {})
        text, failed = await anyio.to_thread.run_sync(answer, parameters.name, arguments)
        content: list[Any] = [types.TextContent(type="text", text=text)]
        return types.CallToolResult(content=content, is_error=failed)

    return Server(
        "firstfault",
        version=__version__,
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def serve_stdio(roots: str = "") -> None:
    """Serve until standard input closes. roots: folders below which files may be named, by ':'."""
    import anyio
    from mcp.server.stdio import stdio_server

    given = {"mcp_roots": roots} if roots else {}
    server = make_server(Desk(settings=Settings(**given)))  # type: ignore[arg-type]

    async def run() -> None:
        async with stdio_server() as (reading, writing):
            await server.run(reading, writing, server.create_initialization_options())

    anyio.run(run)
