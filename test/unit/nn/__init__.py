"""File formats, state dictionaries and data sets."""
