"""Simplification of expressions."""

from __future__ import annotations

from tinygrad.uop.upat import PatternMatcher

symbolic_simple = PatternMatcher([])
symbolic = symbolic_simple
