"""Functions of neural networks, and their losses."""
