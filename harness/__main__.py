"""`python -m harness` is `atlas`."""

from __future__ import annotations

import signal
import sys


def main() -> int:
    """Run the command line; Ctrl-C while its modules are still loading ends it without a word."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a run installs its own handler
    from harness import cli

    return cli.main()


if __name__ == "__main__":
    sys.exit(main())
