"""The modules with made-up traces lie in tests/view; tests in all folders use them."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "view"))
