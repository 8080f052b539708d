"""``python -m bccnd.daemon`` is ``bccnd``."""

import sys

from bccnd.daemon.service import main

sys.exit(main())
