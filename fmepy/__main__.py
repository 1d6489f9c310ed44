"""``python -m fmepy``: the command `fmepy`."""

import sys

from fmepy.workflow.command import main

if __name__ == "__main__":
    sys.exit(main())
