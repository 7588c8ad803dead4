"""`firstfault doctor`: does this installation work?"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

import click


@click.command("doctor", epilog="Exit codes: 0 everything needed works, 4 something failed.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
@click.option("--offline", is_flag=True, help="Do not ask the model endpoint.")
def COMMAND(as_json: bool, offline: bool) -> None:
    """Check database, knowledge, index, embedder, browser and model, and say what to do."""
    from pydantic import ValidationError

    from firstfault.errors import UsageError
    from firstfault.operations.doctor import State, examine_installation
    from firstfault.settings import Settings

    try:
        settings = Settings()  # type: ignore[call-arg]
    except ValidationError as error:
        first = error.errors()[0]
        name = "FIRSTFAULT_" + "_".join(map(str, first["loc"])).upper()
        raise UsageError(f"{name}: {first['msg']}") from error
    signs = {State.OK: "ok", State.WARNING: "!!", State.FAILED: "XX", State.ABSENT: "--"}
    rows = []
    for check in examine_installation(settings, network=not offline):
        rows.append(check)
        if not as_json:
            click.echo(f"[{signs[check.state]}] {check.name:<13} {check.detail}")
            if check.advice:
                click.echo(f"{'':<18} {check.advice}")
    if as_json:
        click.echo(json.dumps([asdict(r) for r in rows], indent=1, ensure_ascii=False))
    sys.exit(4 if any(r.state is State.FAILED for r in rows) else 0)
