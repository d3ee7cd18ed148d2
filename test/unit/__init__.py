"""Tests without a device: they mirror the folders of `tinygrad/`."""
