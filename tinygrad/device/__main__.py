"""`python -m tinygrad.device`: which devices this machine has, and whether they compute."""

import sys

from tinygrad.apps.device_report import main

sys.exit(main(sys.argv[1:]))
