"""``python -m bccnd.uplink`` is ``bccnd-uplink``."""

import sys

from bccnd.uplink.command import main

sys.exit(main())
