"""What can go wrong in a tool, as one tree.

ToolError
+-- UnreadableArtefact    the bytes are not what the reader needs (what, where, what to do next)
+-- HostileArtefact       the bytes ask for something no reader does (code in a pickle, a bomb)
+-- InvalidParameter      a calculator's input breaks a rule; names the field and the rule
"""

from __future__ import annotations


class ToolError(Exception):
    """Base of every error a tool raises on purpose. The message says what, where and what next."""


class UnreadableArtefact(ToolError):
    """The artefact is not in a format its reader knows."""


class HostileArtefact(ToolError):
    """The artefact asks to run code or to exhaust the machine; it was refused."""


class InvalidParameter(ToolError, ValueError):
    """A calculator's input breaks a rule. `field` is the name of the input."""

    def __init__(self, field: str, rule: str) -> None:
        super().__init__(f"{field}: {rule}")
        self.field = field
        self.rule = rule
