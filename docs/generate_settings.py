"""Writes docs/settings.md from the declarations in tinygrad/settings.py.

Run as `python docs/generate_settings.py`; a test checks that the file is up to date.
"""

from pathlib import Path

from tinygrad.settings import settings_page

if __name__ == "__main__":
    (Path(__file__).parent / "settings.md").write_text(settings_page())
