"""The sub-commands of ``bccn``, a module each, with ``add_arguments(parser)`` and ``run(arguments) -> exit code``.

Only the command that runs is imported: a script that runs ``bccn pub`` a thousand times does not pay for the others.
"""
