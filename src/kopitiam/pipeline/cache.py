"""What is made once for an installation, so that Spark starts sooner from then on."""

import os
import sys
from pathlib import Path


def cache_folder() -> Path:
    return Path(os.environ.get("KOPI_CACHE", Path(sys.prefix) / "share" / "kopitiam"))
