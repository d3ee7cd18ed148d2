"""Tests on the default device, by stage: `CUDA=1 pytest test/backend` runs them on CUDA."""
