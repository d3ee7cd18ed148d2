"""Model files: names of a catalogue, downloads, models split into several files."""
