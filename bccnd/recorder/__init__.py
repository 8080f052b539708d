"""``bccnd-record``: keeps what this host sends, receives and rejects as Parquet files.

A client of the bus with the right to tap: ``tap`` reads packets, ``rows`` makes columns of them, ``account`` marks of
what the daemon says of itself, ``writer`` puts them in order, ``files`` writes them through a ``sink`` into the
``folders`` of the host, and ``service`` runs it all. ``layout`` says what a file holds. README.md is for operators.
"""
