"""`python -m gcfl.cli`."""

import sys

from gcfl.cli import main

sys.exit(main())
