"""The path of `tinygrad.apps.llm`, as programs for tinygrad 0.13 import it."""

from tinygrad.apps.llm import *  # noqa: F403
from tinygrad.apps.llm import __all__ as __all__
