"""`python -m gcfl` is `gcfl`."""

from __future__ import annotations

import sys

from gcfl.cli import main

if __name__ == "__main__":
    sys.exit(main())
