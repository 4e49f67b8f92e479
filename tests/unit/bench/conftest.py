"""The benchmark stands in the repository and is not installed: its tests find it there."""

import sys
from pathlib import Path

REPOSITORY = str(Path(__file__).parents[3])
if REPOSITORY not in sys.path:
    sys.path.append(REPOSITORY)  # last, so that nothing installed is hidden
