"""``python -m bccnd.mux``."""

import sys

from bccnd.mux.command import main

if __name__ == "__main__":
    sys.exit(main())
