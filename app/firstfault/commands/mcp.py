"""`firstfault mcp`: the tools for another program's assistant, over stdio."""

from __future__ import annotations

import os

import click


@click.command(
    "mcp",
    epilog='Client configuration: {"mcpServers": {"firstfault": {"command": "firstfault", "args": ["mcp"]}}}. '
    "docs/skill/SKILL.md says when to call which tool.",
)
@click.option(
    "--root",
    "roots",
    multiple=True,
    type=click.Path(exists=True, file_okay=False),
    help="Folder below which files may be named (several times; FIRSTFAULT_MCP_ROOTS). Without one: "
    "whatever your user may read, but /proc, /sys, /dev and Firstfault's own data.",
)
def COMMAND(roots: tuple[str, ...]) -> None:
    """Serve tools that run nothing to an MCP client over standard input and output."""
    from firstfault.mcp_server.server import serve_stdio

    os.umask(0o077)
    serve_stdio(os.pathsep.join(roots))
