"""What does the agent still hold of an incident that is deleted for good? Nothing, after this.

Its own tables (consents, approvals, results of probes) and the checkpoints of the graph, in
which the messages of every turn stand.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

from firstfault.agent.store import (
    AgentStore,
    agent_file,
    checkpoints_file,
    is_postgres,
    open_checkpoints,
    open_store,
)
from firstfault.conversation.answerer import Answerer
from firstfault.settings import Settings


def forget_incident(settings: Settings, incident: str, answerer: Answerer | None = None) -> int:
    """Delete all that the agent keeps of an incident; how many threads of the graph went.

    answerer: that of this process, which may hold the store open.
    """
    with _find_store(settings, answerer) as store:
        if store is not None:
            store.delete_incident(incident)
    if not (is_postgres(settings) or checkpoints_file(settings).exists()):
        return 0
    with open_checkpoints(settings) as checkpoints:
        saver: Any = checkpoints
        mark = "%s" if is_postgres(settings) else "?"
        rows = saver.conn.execute(
            f"SELECT DISTINCT thread_id AS thread FROM checkpoints WHERE thread_id LIKE {mark}",
            (f"{incident}:%",),
        ).fetchall()
        threads = [row["thread"] if isinstance(row, dict) else row[0] for row in rows]
        for thread in threads:
            saver.delete_thread(thread)
    return len(threads)


@contextmanager
def _find_store(settings: Settings, answerer: Answerer | None) -> Iterator[AgentStore | None]:
    """The store that the answerer holds, else one for this call; None where there never was one."""
    held = None if answerer is None else _store_of(answerer)
    if held is not None:
        yield held
    elif is_postgres(settings) or agent_file(settings).exists():
        with closing(open_store(settings)) as store:
            yield store
    else:
        yield None


def _store_of(answerer: Answerer) -> AgentStore | None:
    store = getattr(answerer, "store", None)
    return store if isinstance(store, AgentStore) else None
