"""Firstfault: the first fault of a distributed training run, with its evidence."""

__version__ = "0.1.0"
