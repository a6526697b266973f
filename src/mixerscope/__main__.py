"""`python -m mixerscope` is `mixerscope`."""

import sys

from mixerscope.cli import main

if __name__ == "__main__":
    sys.exit(main())
