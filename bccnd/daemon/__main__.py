"""``python -m bccnd.daemon`` is ``bccnd``."""

import sys

from bccnd.daemon.program import main

if __name__ == "__main__":
    sys.exit(main())
