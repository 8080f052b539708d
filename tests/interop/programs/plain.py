"""A plain BCCN1 program: prints the datagrams it receives, and sends the lines "<chan> <payload>" it reads.

usage: plain.py BROADCAST PORT [reuseport]
"""

import select
import socket
import sys

broadcast, port = sys.argv[1], int(sys.argv[2])
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
sock.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
if "reuseport" in sys.argv:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
sock.bind(("0.0.0.0", port))
print("ready", flush=True)
seq = 0
while True:
    readable, _, _ = select.select([sys.stdin, sock], [], [])
    if sock in readable:
        print(sock.recv(2048).decode("latin-1"), flush=True)
    if sys.stdin in readable:
        line = sys.stdin.readline()
        if not line:
            break
        seq += 1
        body = f"?:{seq}:" + line.rstrip("\n").replace(" ", "|", 1)
        sock.sendto(f"BCCN1[{len(body)}]{body}".encode(), (broadcast, port))
