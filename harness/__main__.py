"""`python -m harness` is `atlas`."""

import sys

from harness.cli import main

sys.exit(main())
