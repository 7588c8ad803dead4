"""What can go wrong in Firstfault, as one tree. Every message says what, where and what to do next.

FirstfaultError
+-- UsageError            the caller asked for something that does not exist (exit code 2)
+-- InputUnreadable       the input could not be read at all (exit code 3)
+-- CannotAnalyse         a part failed, so there is no answer: never the same as nothing wrong (4)
+-- ModelUnavailable      the model endpoint did not answer; the deterministic answer stands
+-- IncidentNotFound      no incident with this id
"""

from __future__ import annotations


class FirstfaultError(Exception):
    """Base of every error raised on purpose. `exit_code` is what the command ends with."""

    exit_code = 4


class UsageError(FirstfaultError):
    """The caller asked for something that does not exist."""

    exit_code = 2


class InputUnreadable(FirstfaultError):
    """The input could not be read at all."""

    exit_code = 3


class CannotAnalyse(FirstfaultError):
    """A part failed, so there is no answer. Never the same as nothing wrong."""


class ModelUnavailable(FirstfaultError):
    """The model endpoint did not answer; the deterministic answer stands."""


class IncidentNotFound(FirstfaultError):
    """No incident with this id."""

    exit_code = 2
