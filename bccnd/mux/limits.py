"""What the door holds for others, each bound with its reason. ``bpmux.limits`` has those of one endpoint."""

from bpmux.limits import Limits

# Of each endpoint. A payload is a packet of the bus, and no packet is longer.
ENDPOINT = Limits()

# Credit of a session's duplex: what a client may have on its way to the daemon. The documents promise it.
WINDOW = 64 * 1024

# What each packet that waits for the daemon, or for room in the endpoint, takes besides its bytes.
PACKET_BYTES = 64

# Packets that a daemon does not take, for one session: its window in packets of ten bytes, and one long one.
SESSION_WAITING = 512 * 1024

# Bytes in one endpoint that have credit, and wait for the socket. Beyond this no session of the connection reads the
# daemon: a batch of one of them costs a fraction of a packet of each of a thousand.
READY = 512 * 1024
# What one that reads on is expected to add: a batch of usual packets.
READ_ON = 16 * 1024

# Bytes that wait in one endpoint for the peer. Beyond this a session reads the daemon one packet at a time, and only
# if nothing of its own waits: what stands there are then packets for which some credit had come.
QUEUED = 1024 * 1024

# Bytes of replies that wait: whoever does not read them is not read either. A quarter of what ends the connection.
REPLIES = ENDPOINT.replies // 4

# Bytes that all connections of one user hold: 64 sessions whose windows are full, three times over. Beyond it the
# connection of that user that holds most is dropped.
USER_BYTES = 32 * 1024 * 1024

# What is read of a peer at a time.
READ = 64 * 1024
# Work of one turn, in chunks, as ``Endpoint.work`` counts it: some milliseconds. What has come besides waits for the
# next turn, and the others have theirs between.
CHUNKS = 1024
# All connections of one user have so much in a round of the loop, and the least that one of many has in a turn is the
# work of half an opening.
SHARE = 16
# Chunks that have the work of one frame of WebSocket, or record of TLS; and how many of these there are in a turn.
FRAME = 4
FRAMES = CHUNKS // FRAME

# What is written to a peer in one turn, and to all connections of a user in a round: then the others have theirs.
WRITTEN = 512 * 1024
# The least of it, where many have something to write: what is made of an endpoint at a time.
PIECE = 64 * 1024

# Packets that are read of the daemon for one user in a round: some milliseconds.
PACKETS = 1024

# Requests of one connection that are under way. Each is a connection to the daemon, for a moment.
ERRANDS = 8

# Seconds for a connection to say its first chunk and give its first credit, with everything before it (TLS, HTTP).
GREETING_SECONDS = 10.0

# Connections at a time of which nobody knows yet who they are: a handshake of TLS costs a millisecond and 100 KB.
THRESHOLDS = 128

# Records of TLS that carry nothing, of each of those: a handshake has some ten.
HANDSHAKE = 100

# Chunks a second that carry nothing, of a peer elsewhere: a client grants credit in portions of half a window.
CHATTER = 1000
# What was held up on the way may come at once, of so many seconds.
CHATTER_SECONDS = 10.0

# Links of one user on their way to the daemon: more than it accepts in a turn, and far below its places.
JOINING = 64

# Seconds for the daemon to accept a session and to say who it is: it may be busy.
JOINING_SECONDS = 30.0

# Seconds for the daemon to take what a client that has left had sent.
LINGER_SECONDS = 10.0

# Connections that are told why they are turned away; whoever comes besides is closed without a word.
# No account is held of them, so what each may hold is little: a client opens some channels before it hears why.
REFUSALS = 64
REFUSAL_SECONDS = 2.0
REFUSED_BYTES = 256 * 1024

# Seconds until connections are accepted again after there were no descriptors left.
ACCEPT_SECONDS = 0.2

# Connections accepted in one turn.
ACCEPTS = 16

# Seconds for all to hear that the door stops.
FAREWELL_SECONDS = 2.0

# Replays at a time, of all and of one user. One thread reads for all of them, and users take turns at it.
REPLAYS = 32
USER_REPLAYS = 4

# What a replay takes to read a file, about: pages of some columns, and the footer.
REPLAY_BYTES = 2 * 1024 * 1024

# Rows that are read at a time, at most, and bytes of them, about: some milliseconds of work.
PORTION_ROWS = 1024
PORTION_BYTES = 256 * 1024
# Portions without a row that is wanted, until others have their turn.
EMPTY_PORTIONS = 16

# Bytes of live messages that a replay holds until its record has reached them. What is older goes for it, and the
# record then has to reach further.
SEAM_BYTES = 4 * 1024 * 1024

# Seconds between two looks for a new file, and those after which the recorder is taken for dead: it ends a file
# every 30 seconds unless it is told otherwise.
LOOK_SECONDS = 0.5
SEAM_SECONDS = 120.0

# Seconds after which a replay asks the daemon again whether its user may have this.
RIGHTS_SECONDS = 10.0
