"""Deterministic tools that turn logs and artefacts of a training run into cited findings."""
