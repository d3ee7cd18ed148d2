"""What can be wrong with a model, or with what it is given."""

from __future__ import annotations


class OnnxError(ValueError):
    """A model file or an input that is not valid; the message names the place and the fix."""


class OnnxUnsupportedError(OnnxError, NotImplementedError):
    """A valid model that needs what is not there; the message lists what."""
