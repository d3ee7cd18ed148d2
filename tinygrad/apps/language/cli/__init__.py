"""The program `python -m tinygrad.apps.llm`."""
