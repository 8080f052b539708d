"""The sub-commands of ``bccn``, a module each: ``add_arguments(parser)`` and ``run(arguments) -> exit code``.

They are imported only when they are called for: a script that runs ``bccn pub`` a thousand times pays for no other.
"""
