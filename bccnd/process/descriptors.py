"""How many descriptors a program may have: one for each client, and some for everything else."""

import resource

import structlog

from bccnd.errors import RefusedError

# Descriptors besides those of clients: sockets, loop, logs, libraries.
SPARE = 64

log = structlog.get_logger()


def allow_descriptors(clients: int, program: str = "bccnd") -> None:
    """Raise the soft limit as far as the clients need and the hard limit lets us.

    Raises RefusedError if none would be left for a client.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = clients + SPARE
    if hard != resource.RLIM_INFINITY and hard <= SPARE:
        raise RefusedError(
            f"{hard} file descriptors are allowed, and {program} needs {SPARE} for itself; "
            "raise LimitNOFILE or ulimit -n"
        )
    if soft != resource.RLIM_INFINITY and soft < wanted:
        allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
        if allowed < wanted:
            log.warning("few file descriptors", allowed=allowed, wanted=wanted, remedy="raise LimitNOFILE")
