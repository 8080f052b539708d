"""``python -m bccnd.daemon`` is ``bccnd``."""

import sys

from bccnd.daemon.program import main

sys.exit(main())
