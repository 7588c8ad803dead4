"""Which answerer does this installation have? The door through which the other rooms enter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from firstfault.agent.endpoint import read_endpoint
from firstfault.conversation.pages import PassageSearch
from firstfault.conversation.rules import RuleAnswerer, search_lexically

if TYPE_CHECKING:
    from firstfault.agent.answerer import AgentAnswerer
    from firstfault.agent.model import Model
    from firstfault.agent.probe_offer import ProbingRules
    from firstfault.incidents.record import Record


def open_answerer(
    record: Record, model: Model | None = None, search: PassageSearch = search_lexically
) -> AgentAnswerer:
    """Answerer over a record: with the model of the settings (or `model`), else by rule alone.

    Opens no connection to an endpoint.
    """
    from firstfault.agent.answerer import AgentAnswerer
    from firstfault.agent.model import EndpointModel
    from firstfault.agent.probe import run_local_probe
    from firstfault.agent.store import open_store
    from firstfault.investigation.diagnosis import Diagnosis

    settings = record.settings
    endpoint = read_endpoint(settings)
    if model is None and endpoint is not None:
        model = EndpointModel(endpoint)

    def history(incident: str, diagnosis: Diagnosis):  # type: ignore[no-untyped-def]
        with record.database.read() as connection:
            return record.verdicts.related(connection, incident, diagnosis)

    return AgentAnswerer(
        settings=settings,
        store=open_store(settings),
        model=model,
        search=search,
        rules=RuleAnswerer(search),
        history=history,
        run_probe=run_local_probe if settings.model_probe else None,
    )


def open_probing(record: Record, search: PassageSearch = search_lexically) -> ProbingRules:
    """Answers by rule that may measure this machine after an approval."""
    from firstfault.agent.probe import run_local_probe
    from firstfault.agent.probe_offer import ProbingRules
    from firstfault.agent.store import open_store

    return ProbingRules(open_store(record.settings), run_local_probe, RuleAnswerer(search))
