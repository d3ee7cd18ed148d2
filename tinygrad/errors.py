"""The errors of arguments that an operation cannot take.

Libraries differ in whether a wrong shape is a ValueError or a RuntimeError; these are both, so
programs may catch either.
"""

from __future__ import annotations


class ArgumentError(ValueError, RuntimeError):
    """A shape, size, dtype or option that the operation cannot take."""


class ArgumentIndexError(ArgumentError, IndexError):
    """An index or an axis that the tensor does not have."""
