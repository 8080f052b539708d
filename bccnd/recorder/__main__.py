"""``python -m bccnd.recorder`` is ``bccnd-record``."""

import sys

from bccnd.recorder.command import main

sys.exit(main())
