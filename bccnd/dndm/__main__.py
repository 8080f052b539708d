"""``python -m bccnd.dndm`` is ``bccnd-dndm``."""

import sys

from bccnd.dndm.command import main

sys.exit(main())
