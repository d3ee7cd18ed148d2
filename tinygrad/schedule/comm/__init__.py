"""Rewrites of communication in the tensor graph, before layouts are lowered."""
