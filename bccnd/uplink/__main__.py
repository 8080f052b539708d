"""``python -m bccnd.uplink`` is ``bccnd-uplink``."""

import sys

from bccnd.uplink.command import main

if __name__ == "__main__":
    sys.exit(main())
