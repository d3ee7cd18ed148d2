"""Errors of models and their inputs."""

from __future__ import annotations


class OnnxError(ValueError):
    """A model file or an input is invalid; the message names the place and the fix."""


class OnnxUnsupportedError(OnnxError, NotImplementedError):
    """A valid model needs unsupported features; the message lists them."""
