"""The five phases: what is known, on which rank, which cause, how sure, and what to do."""
