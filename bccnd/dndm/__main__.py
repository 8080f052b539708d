"""``python -m bccnd.dndm`` is ``bccnd-dndm``."""

import sys

from bccnd.dndm.command import main

if __name__ == "__main__":
    sys.exit(main())
