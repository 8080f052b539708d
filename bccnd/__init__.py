"""bccnd: messaging between the programs of a network segment, without a broker."""

import os

__version__ = "0.1.0"

# Read once, here, as bccnd.wire, which it concerns, does not ask the system for anything.
PURE = bool(os.environ.get("BCCN_PURE"))
"""Whether to do without what is compiled: BCCN_PURE in the environment, with any value but an empty one."""
