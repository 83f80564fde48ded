"""Lets the modules of this room import each other, whatever directory the tests are started from."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2]))
