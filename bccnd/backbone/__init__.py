"""The backbone: numbers the messages of clients in several networks and sends each to all of them, over UDP.

``command`` starts it; ``service`` puts it together and runs it; ``core`` decides, without I/O.
"""
