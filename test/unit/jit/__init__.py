"""Replays of captured functions: order and groups of launches."""
