"""`firstfault mcp`: the tools for another program's assistant, over stdio."""

from __future__ import annotations

import click


@click.command(
    "mcp",
    epilog='Client configuration: {"mcpServers": {"firstfault": {"command": "firstfault", "args": ["mcp"]}}}. '
    "docs/skill/SKILL.md says when to call which tool.",
)
def COMMAND() -> None:
    """Serve the read-only tools to an MCP client over standard input and output."""
    from firstfault.mcp_server.server import serve_stdio

    serve_stdio()
