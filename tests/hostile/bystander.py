"""The bystander: one publisher and one subscriber of a channel that nobody else has business with, in one process.

    python -I -S bystander.py SOCKET MESSAGES_A_SECOND GIVES_UP PAUSE [PORT]

It imports nothing of the project, so that it starts at once. It prints ``ready`` after its first message, publishes
until its input ends, waits for what is missing, and prints its account as one JSON object:

    sent, received    messages
    lost              those that did not come, that were reported dropped, or that came out of order
    late              whether a message did not come within GIVES_UP seconds from when it was due: then it is over
    closed            whether the daemon ended one of its connections
    p50, p99, worst   milliseconds from when a message was due until it was received

A message that the daemon has not taken yet is late from the moment when it was due. With PAUSE the subscriber stops
reading for so many seconds in each: what came due meanwhile is late from when it reads again. With PORT the publisher
is a plain program of the segment, ``there/plain/1``, which sends datagrams to the broadcast address of the loopback.
"""

import json
import os
import select
import socket
import sys
import time

PACKET_LIMIT = 1 << 17
CHANNEL = b"bystander/x"
SOURCE = b"there/plain/1"
# As a clock of microseconds gives it, which is what most sources count by.
FIRST_NUMBER = 1_800_000_000_000_000
# Seconds that a datagram can still be on its way after the last was sent: then it is lost.
UNDER_WAY = 2.0


def bus(path):
    with_daemon = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with_daemon.connect(path)
    return with_daemon


def local_publisher(path):
    """The socket to publish by, and how a message is sent: by a function that raises OSError."""
    publisher = bus(path)
    publisher.setblocking(False)
    return publisher, lambda payload, _number: publisher.send(b"MSG %b\0%b" % (CHANNEL, payload))


def plain_publisher(port):
    publisher = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    publisher.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
    publisher.setblocking(False)

    def send(payload, number):
        body = b"%b:%d:%b|%b" % (SOURCE, FIRST_NUMBER + number, CHANNEL, payload)
        publisher.sendto(b"BCCN1[%d]%b" % (len(body), body), ("127.255.255.255", port))

    return publisher, send


class Account:
    """What was sent, what came, and how late."""

    def __init__(self):
        self.mark = os.urandom(8).hex().encode()
        self.sent = self.received = self.dropped = self.wrong = 0
        self.late = self.closed = False
        self.delays = []
        self.reads_since = 0.0

    def take(self, packet):
        head, _, payload = packet.partition(b"\0")
        if head == b"CMSG dropped":
            self.dropped += int(payload)
        elif head == b"MSG " + CHANNEL and payload.startswith(self.mark):
            _, number, due = payload.split()
            self.delays.append(time.monotonic() - max(float(due), self.reads_since))
            self.wrong += int(number) < self.received
            self.received += 1
        elif head == b"CMSG closing" or not packet:
            self.closed = True

    @property
    def settled(self):
        """How many messages have come, or will not."""
        return self.received + self.dropped

    def as_json(self):
        delays = sorted(self.delays) or [0.0]
        return json.dumps(
            {
                "sent": self.sent,
                "received": self.received,
                "lost": max(self.sent - self.received, self.dropped) + self.wrong,
                "late": self.late,
                "closed": self.closed,
                "p50": 1000 * delays[len(delays) // 2],
                "p99": 1000 * delays[len(delays) * 99 // 100],
                "worst": 1000 * delays[-1],
            }
        )


class Pair:
    """The publisher and the subscriber, in one loop that never waits for either."""

    def __init__(self, subscriber, publisher, send, rate, gives_up, pause):
        self.subscriber, self.publisher, self.send = subscriber, publisher, send
        self.rate, self.gives_up, self.pause = rate, gives_up, pause
        self.account = Account()
        self.begun = time.monotonic()
        self.publishing = True

    def run(self):
        account, ready, resting = self.account, False, False
        while self.publishing or account.settled < account.sent:
            now = time.monotonic()
            wait = self.publish(now) if self.publishing else 0.01
            account.late = now - (self.begun + account.settled / self.rate) > self.gives_up
            if account.late or account.closed:
                break
            rested, resting = resting, self.pause and now % 1.0 < self.pause
            if rested and not resting:
                account.reads_since = now
            sockets = [] if resting else [self.subscriber, self.publisher]
            readable, _, _ = select.select(sockets + [sys.stdin] * self.publishing, [], [], wait)
            for each in readable:
                if each is sys.stdin:
                    self.publishing = bool(sys.stdin.readline())
                    if self.publisher.type == socket.SOCK_DGRAM:
                        self.gives_up = min(self.gives_up, UNDER_WAY)
                else:
                    self.read(each)
            if account.received and not ready:
                ready = True
                sys.stdout.write("ready\n")
                sys.stdout.flush()

    def publish(self, now):
        """Publish what is due. Seconds until there is more to do: a full socket is tried again after a while."""
        account = self.account
        while True:
            due = self.begun + account.sent / self.rate
            if due > now:
                return due - now
            try:
                self.send(b"%b %d %.6f" % (account.mark, account.sent, due), account.sent)
            except BlockingIOError:
                return 0.001
            except OSError:
                account.closed = True
                return 0.0
            account.sent += 1

    def read(self, ready):
        try:
            while not self.account.closed:
                self.account.take(ready.recv(PACKET_LIMIT))
        except BlockingIOError:
            pass
        except OSError:
            self.account.closed = True


def main(path, rate, gives_up, pause, port=""):
    subscriber = bus(path)
    subscriber.send(b"SUB " + CHANNEL)
    subscriber.send(b"CMSG ping")
    while not subscriber.recv(PACKET_LIMIT).startswith(b"CMSG pong"):
        pass
    subscriber.setblocking(False)
    publisher, send = plain_publisher(int(port)) if port else local_publisher(path)
    pair = Pair(subscriber, publisher, send, float(rate), float(gives_up), float(pause))
    pair.run()
    sys.stdout.write(pair.account.as_json() + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
