"""What the packets of the client that is being read have cost in this call, in steps (``client_input``).

Whoever does work of a length that a client chooses counts it here; the reader sets it back, and looks when to stop.
"""


class Meter:
    def __init__(self) -> None:
        self.steps = 0
