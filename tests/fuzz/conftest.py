"""Sound files to damage come from the tests of interop."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "interop"))
