"""The stream door: the bus of this host for programs that cannot open its socket, over bpmux (``clients/BPMUX.md``).

``README.md`` is for whoever runs it, and says how it is made.
"""
