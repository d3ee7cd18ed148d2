"""Model files: the catalogue, and downloads from the Hub."""
