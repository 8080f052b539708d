"""``python -m bccnd.backbone`` is ``bccnd-backbone``."""

import sys

from bccnd.backbone.command import main

if __name__ == "__main__":
    sys.exit(main())
