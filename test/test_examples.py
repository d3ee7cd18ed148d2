"""The examples, on digits so plain that a few small steps learn them; with real data if slow."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tinygrad import Tensor
from tinygrad.nn import datasets
from tinygrad.settings import _getenv_cached

EXAMPLES = Path(__file__).parents[1] / "examples"
MNIST = ("beautiful_mnist.py", "beautiful_mnist_multigpu.py")


def plain_digits(device=None, fashion=False):
    """Images in which the place of a bright block is the digit."""
    digits = np.random.default_rng(0).integers(0, 10, 96, dtype=np.uint8)
    images = np.zeros((96, 1, 28, 28), np.uint8)
    for image, digit in zip(images, digits, strict=True):
        row, column = divmod(int(digit), 4)
        image[0, 9 * row : 9 * row + 8, 7 * column : 7 * column + 7] = 255
    x, y = Tensor(images), Tensor(digits)
    return x[:64], y[:64], x[64:], y[64:]


@pytest.fixture
def run(monkeypatch):
    """Runs an example on plain digits, with the given variables in its environment."""
    monkeypatch.setattr(datasets, "mnist", plain_digits)

    def run_example(name: str, **variables: str) -> None:
        for key, value in variables.items():
            monkeypatch.setenv(key, value)
        _getenv_cached.cache_clear()
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")

    yield run_example
    _getenv_cached.cache_clear()


@pytest.mark.parametrize("name", MNIST)
def test_an_example_learns(run, capsys, name):
    run(name, BS="32", STEPS="20", TARGET_EVAL_ACC_PCT="90")
    captured = capsys.readouterr()
    assert "reaches 90" in captured.out
    assert "test_accuracy" in captured.err


@pytest.mark.parametrize("name", MNIST)
def test_an_example_that_misses_its_target_fails(run, name):
    with pytest.raises(SystemExit, match="below 101"):
        run(name, BS="8", STEPS="1", TARGET_EVAL_ACC_PCT="101")


@pytest.mark.slow
@pytest.mark.parametrize("name", MNIST)
def test_an_example_learns_mnist(name):
    environment = os.environ | {"TARGET_EVAL_ACC_PCT": "97"}
    subprocess.run([sys.executable, str(EXAMPLES / name)], check=True, env=environment)
