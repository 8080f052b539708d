"""``python -m bccnd.backbone`` is ``bccnd-backbone``."""

import sys

from bccnd.backbone.command import main

sys.exit(main())
