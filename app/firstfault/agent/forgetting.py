"""What does the agent still hold of an incident that is deleted for good? Nothing, after this.

Its own tables (consents, approvals, dialogues, results of probes) and the checkpoints of the graph, in
which the messages of every turn stand.
"""

from __future__ import annotations

from typing import Any

from firstfault.agent.store import (
    agent_file,
    checkpoints_file,
    is_postgres,
    open_checkpoints,
    open_store,
)
from firstfault.settings import Settings


def forget_incident(settings: Settings, incident: str) -> int:
    """Delete all that the agent keeps of an incident; how many threads of the graph went."""
    if is_postgres(settings) or agent_file(settings).exists():
        store = open_store(settings)
        try:
            store.delete_incident(incident)
        finally:
            store.close()
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
