"""System calls without protocol: batched receive and send, broadcast sockets, the local listener."""
