"""The golden files of version 1: their bytes, and the expected result of reading each.

tests/vectors/files.json --> FILES; HEX, the bytes of each by its name
"""

import json
from pathlib import Path
from typing import Any

VECTORS = Path(__file__).parents[2] / "vectors"
FILES: list[dict[str, Any]] = json.loads((VECTORS / "files.json").read_text())["vectors"]
HEX = {vector["name"]: bytes.fromhex(vector["hex"]) for vector in FILES}
