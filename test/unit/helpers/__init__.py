"""Helpers, settings, caches and downloads."""
