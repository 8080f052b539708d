"""The bounds of what the door holds for others, each with its reason. ``bpmux.limits`` has those of one endpoint."""

from bpmux.limits import Limits

# Of each endpoint. A payload is a packet of the bus, and no packet is longer.
ENDPOINT = Limits()

# Credit of a session's duplex: bytes that a client may have on the way to the daemon. The documents promise it.
WINDOW = 64 * 1024

# What a packet that waits for the daemon, or for room in the endpoint, takes in addition to its bytes.
PACKET_BYTES = 64

# Packets of one session that wait for the daemon: its window in packets of ten bytes, and one long one.
SESSION_WAITING = 512 * 1024

# Bytes in one endpoint that have credit, and wait for the socket. Beyond this no session of the connection reads from
# the daemon: one batch of one session costs less than one packet of each of a thousand.
READY = 512 * 1024
# Bytes that a session that reads on is expected to add: a batch of usual packets.
READ_ON = 16 * 1024

# Bytes that wait in one endpoint for the peer. Beyond this a session reads one packet at a time from the daemon, and
# only if none of its own waits: so only packets for which some credit has come wait there.
QUEUED = 1024 * 1024

# Bytes of replies that wait: a peer that does not read them is not read either. A quarter of what ends the
# connection.
REPLIES = ENDPOINT.replies // 4

# Bytes that all connections of one user hold: 64 sessions whose windows are full, three times over. Beyond it the
# connection of that user that holds most is dropped.
USER_BYTES = 32 * 1024 * 1024

# Bytes that are read from a peer at a time.
READ = 64 * 1024
# Work of one turn, in chunks, as ``Endpoint.work`` counts it: some milliseconds. The rest waits for the next turn,
# and other connections have theirs in between.
CHUNKS = 1024
# All connections of one user have that much in a round of the loop. The least that one of many gets in a turn is the
# work of half an opening.
SHARE = 16
# Chunks that make as much work as one frame of WebSocket, or record of TLS; and how many of these a turn has.
FRAME = 4
FRAMES = CHUNKS // FRAME

# Bytes that are written to a peer in one turn, and to all connections of a user in a round.
WRITTEN = 512 * 1024
# The least bytes of a turn, where many have something to write: what an endpoint makes at a time.
PIECE = 64 * 1024

# Packets that are read from the daemon for one user in a round: some milliseconds.
PACKETS = 1024

# Requests of one connection that are under way. Each is a connection to the daemon, for a moment.
ERRANDS = 8

# Seconds for a connection to say its first chunk and give its first credit, with everything before it (TLS, HTTP).
GREETING_SECONDS = 10.0

# Connections at a time whose user is not known yet: a handshake of TLS costs a millisecond and 100 KB.
THRESHOLDS = 128

# TLS records without data, of each of those: a handshake has some ten.
HANDSHAKE = 100

# Chunks without data a second, of a peer elsewhere: a client grants credit in portions of half a window.
CHATTER = 1000
# Chunks of so many seconds may come at once, if the network has held them up.
CHATTER_SECONDS = 10.0

# Links of one user that join the daemon at a time: more than it accepts in a turn, and far below its places.
JOINING = 64

# Seconds for the daemon to accept a session and to say who it is: it may be busy.
JOINING_SECONDS = 30.0

# Seconds for the daemon to take what a client that has left had sent.
LINGER_SECONDS = 10.0

# Connections at a time that are told why they are refused; further ones are closed without a word. They have no
# account, so each may hold only a little: a client opens some channels before it learns why.
REFUSALS = 64
REFUSAL_SECONDS = 2.0
REFUSED_BYTES = 256 * 1024

# Seconds without accepting connections after the process has run out of descriptors.
ACCEPT_SECONDS = 0.2

# Connections accepted in one turn.
ACCEPTS = 16

# Seconds for all peers to learn that the door stops.
FAREWELL_SECONDS = 2.0

# Replays at a time, of all and of one user. One thread reads for all of them, and users take turns at it.
REPLAYS = 32
USER_REPLAYS = 4

# About what a replay needs to read a file: pages of some columns, and the footer.
REPLAY_BYTES = 2 * 1024 * 1024

# Rows that are read at a time, at most, and about how many bytes of them: some milliseconds of work.
PORTION_ROWS = 1024
PORTION_BYTES = 256 * 1024
# Portions without a wanted row, until others have their turn.
EMPTY_PORTIONS = 16

# Bytes of live messages that a replay holds until its record has reached them. Beyond that it drops the oldest, and
# the record has to reach further.
SEAM_BYTES = 4 * 1024 * 1024

# Seconds between two looks for a new file, and seconds after which the recorder is taken for dead: by default it ends
# a file every 30 seconds.
LOOK_SECONDS = 0.5
SEAM_SECONDS = 120.0

# Seconds after which a replay asks the daemon again whether its user still has the right to it.
RIGHTS_SECONDS = 10.0
