"""The model: an agent that may only speak from evidence. Heavy imports stay inside functions."""
