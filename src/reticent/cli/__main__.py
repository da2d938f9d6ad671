"""`python -m reticent.cli`: the same as `reticent`."""

import sys

from reticent.cli.app import main

if __name__ == "__main__":
    sys.exit(main())
