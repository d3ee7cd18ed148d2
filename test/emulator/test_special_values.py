"""Elementwise functions of special values in every GPU dialect, as on the CPU."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TESTS = "test/backend/ops/test_special_values.py"

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("target", ["", "gfx942", "apple7"])
def test_special_values_have_the_functions_of_numpy(target: str, emulated_driver: None) -> None:
    options = ["--emulated-cuda", "forwards", *(["--emulated-target", target] if target else [])]
    chosen = ["-q", "-n", "0", "-k", "not constant"]
    command = [sys.executable, "-m", "pytest", TESTS, *chosen, *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout
