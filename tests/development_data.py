"""The development data: real records that are not part of this repository. Tests that want them skip without them."""

import os
from pathlib import Path

PATH = Path(
    os.environ.get("MNEMOSCOPE_DEV_DATA")
    or Path(__file__).resolve().parent.parent.parent / "shared" / "data" / "memories-dev.jsonl.gz"
)
MISSING = f"the development data is not at {PATH.name}; MNEMOSCOPE_DEV_DATA names another place"
TOTAL = 21_104
