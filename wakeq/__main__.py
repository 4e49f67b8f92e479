"""`python -m wakeq`: the same as the command `wakeq`."""

import sys

from wakeq.cli import main

if __name__ == "__main__":
    sys.exit(main())
