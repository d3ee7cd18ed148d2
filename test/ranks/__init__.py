"""Several processes: `test_*.py` launch them; `plugin.py` runs other tests in each of them."""
