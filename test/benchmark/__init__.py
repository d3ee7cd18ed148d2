"""What the library costs: `python -m test.benchmark [names]` prints medians beside torch's."""
