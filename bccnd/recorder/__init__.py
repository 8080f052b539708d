"""``bccnd-record``: what was sent, received and rejected on this host, kept as Parquet files.

A client of the bus with the right to tap. ``tap`` reads, ``rows`` makes columns of it, ``files`` keeps them, and
``service`` runs it; ``layout`` says what a file holds. The README has it for operators.
"""
