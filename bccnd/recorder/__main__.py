"""``python -m bccnd.recorder`` is ``bccnd-record``."""

import sys

from bccnd.recorder.command import main

if __name__ == "__main__":
    sys.exit(main())
