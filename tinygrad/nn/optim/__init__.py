"""Optimizers: gradients in, parameters changed in place."""

from tinygrad.nn.optim.adam import LAMB, Adam, AdamW
from tinygrad.nn.optim.group import OptimizerGroup
from tinygrad.nn.optim.momentum import LARS, SGD, Muon
from tinygrad.nn.optim.optimizer import Optimizer

__all__ = ["LAMB", "LARS", "SGD", "Adam", "AdamW", "Muon", "Optimizer", "OptimizerGroup"]
