"""The exit codes of a check, as Nagios and its kin expect them (``bccnd/pipeline/README.md``, "Monitoring")."""

from enum import IntEnum


class Status(IntEnum):
    """What is known of the network. UNKNOWN is also whatever kept the check from finding out."""

    OK = 0
    WARNING = 1
    CRITICAL = 2
    UNKNOWN = 3
