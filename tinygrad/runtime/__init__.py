"""One file a device. `tinygrad.device` imports `tinygrad.runtime.<name>` when it is first used."""
