"""What is wrong with the bus of a host, and what to do, concluded from facts that others gather."""
