//! A client outlives its connections. It remembers what the program wants, sends all of that to each new connection,
//! and keeps received messages until the program takes them.
//!
//! ```text
//! program <- recv    <- backlog          <- read_ahead <- socket
//! program <- request <- exchange.answers <-/
//! ```
//!
//! Rules:
//! 1. The client remembers name, options and subscriptions; `greet` sends all of them to a new connection.
//! 2. A call that waits for the daemon sends a numbered ping after its request. When the pong arrives, everything that
//!    the daemon has to say about the request has arrived. A late pong to an earlier request has another number.
//! 3. The socket does not block. Every wait is a poll(2) with a deadline, and keeps reading unless the backlog is full;
//!    otherwise two programs that wait for each other would wait for ever. A connection that has ended is read to its
//!    end.
//! 4. The client drops nothing. If the program does not receive, its messages wait in the bounded queue of the daemon.
//! 5. A subscribe that fails leaves nothing. The client remembers a pattern once the daemon has agreed to it. If the SUB
//!    of a failed call has left, it is withdrawn: an UNSUB and a ping follow, and until the pong the client drops the
//!    messages that came for it alone.
//! 6. Every function runs inside `call`, where a child of fork becomes a source of its own.

use std::collections::VecDeque;
use std::os::fd::{AsRawFd, RawFd};
use std::time::{Duration, Instant};

use crate::link::{deadline_in, Deadline, BACKOFF_FIRST, PACKET_ROOM};
use crate::protocol::{append_msg, build_sub, unpack, Message, LENGTH_SIZE, PACK, PACK_LIMIT};
use crate::request::Exchange;
use crate::socket::{generation, random, watch_forks, Readiness, Socket};
use crate::{Error, Options, Result};

/// How far the current request has come on this connection.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asking {
    Unsaid,
    Said,
    Answered,
}

/// An UNSUB that nobody waits for.
pub(crate) struct Withdrawal {
    pub(crate) pattern: String,
    pub(crate) said: bool, // the UNSUB has left
    pub(crate) ping: u64,  // the number of the ping behind it; 0: not sent yet
}

/// A connection to the bus of this host, which reconnects by itself.
pub struct Client {
    // what the program wants
    pub(crate) options: Options,
    pub(crate) address: Option<String>,
    pub(crate) heartbeat: Option<String>,
    pub(crate) subscriptions: Vec<String>,
    pub(crate) listening: bool,
    pub(crate) hearing: bool, // listens, but only for answers

    // the connection
    pub(crate) generation: u32, // of the process that opened the connection
    pub(crate) socket: Option<Socket>,
    pub(crate) readiness: Readiness,
    pub(crate) was_connected: bool,
    pub(crate) greeting: bool,
    pub(crate) retry_at: Instant,
    pub(crate) backoff: Duration,
    pub(crate) unreachable: String, // why there is no connection
    pub(crate) busy: bool,          // a daemon is there, and accepts no more at this moment
    pub(crate) glance_at: Instant,
    pub(crate) name: String,
    pub(crate) pack_limit: usize, // bytes; 0: packing is not agreed
    pub(crate) buffer: Vec<u8>,
    pub(crate) out: Vec<u8>,

    // asked and published
    pub(crate) asking: Asking,
    pub(crate) withdrawn: Vec<Withdrawal>,
    pub(crate) overhears: bool, // a SUB that was withdrawn makes the daemon deliver `!`
    pub(crate) asked: u64,      // the number of the last ping, and of the last pong
    pub(crate) answered: u64,
    pub(crate) awaited: String, // the key of the answer that is kept; empty: none
    pub(crate) answer: Option<String>,
    pub(crate) complaint: Option<Error>, // about the requests since the last pong
    pub(crate) published: u64,
    pub(crate) published_when_asked: u64,
    pub(crate) confirmed: u64,
    pub(crate) in_doubt: u64,
    pub(crate) rejection: Option<Error>, // the first since the last barrier
    pub(crate) rejections: u64,
    pub(crate) token: String, // the beginning of the token of each request
    pub(crate) requests: u64,
    pub(crate) exchange: Option<Exchange>,

    // received
    pub(crate) opened: Instant,
    pub(crate) backlog: VecDeque<Message>,
    pub(crate) backlog_size: usize,
    pub(crate) lost: u64, // before the next message
}

impl Client {
    /// Connects to `address`: a path, `@name` (abstract), or `None` for the usual places: `$BCCN_SOCKET`,
    /// `/run/bccnd/bus.sock`, `$XDG_RUNTIME_DIR/bccnd/bus.sock`.
    ///
    /// Dropping the client closes the connection at once; call [`Client::barrier`] first to be sure that everything has
    /// arrived.
    pub fn open(address: Option<&str>) -> Result<Client> {
        Options::new().open(address)
    }

    /// A client that has not connected yet.
    pub(crate) fn unconnected(address: Option<String>, options: Options) -> Result<Client> {
        let made = watch_forks().and_then(|()| Ok((Readiness::new()?, random()?)));
        let (readiness, token) = made.map_err(|error| Error::Unavailable(format!("no descriptor: {error}")))?;
        let now = Instant::now();
        Ok(Client {
            options,
            address,
            heartbeat: None,
            subscriptions: Vec::new(),
            listening: false,
            hearing: false,
            generation: generation(),
            socket: None,
            readiness,
            was_connected: false,
            greeting: false,
            retry_at: now,
            backoff: BACKOFF_FIRST,
            unreachable: "not connected".into(),
            busy: false,
            glance_at: now,
            name: String::new(),
            pack_limit: 0,
            buffer: vec![0; PACKET_ROOM],
            out: Vec::new(),
            asking: Asking::Unsaid,
            withdrawn: Vec::new(),
            overhears: false,
            asked: 0,
            answered: 0,
            awaited: String::new(),
            answer: None,
            complaint: None,
            published: 0,
            published_when_asked: 0,
            confirmed: 0,
            in_doubt: 0,
            rejection: None,
            rejections: 0,
            token: format!("{token:016x}."),
            requests: 0,
            exchange: None,
            opened: now,
            backlog: VecDeque::new(),
            backlog_size: 0,
            lost: 0,
        })
    }

    // --- publishing ---

    /// Hands one message to the daemon. The call waits only while the daemon is away or takes no more; after an error
    /// the message was not sent. If the daemon then rejects the message, a notice says so, and the next
    /// [`Client::barrier`] fails.
    pub fn publish(&mut self, channel: &str, payload: impl AsRef<[u8]>) -> Result<()> {
        self.publish_parts("", channel, b"", payload.as_ref())
    }

    /// [`Client::publish`] under the other name that BCCN1 programs use.
    pub fn send_topic(&mut self, channel: &str, payload: impl AsRef<[u8]>) -> Result<()> {
        self.publish(channel, payload)
    }

    /// Publishes to every listening program of the segment.
    pub fn send_all(&mut self, payload: impl AsRef<[u8]>) -> Result<()> {
        self.publish("!", payload)
    }

    /// Publishes to the program whose src is `target`, or to all programs below it.
    pub fn send_to(&mut self, target: &str, payload: impl AsRef<[u8]>) -> Result<()> {
        self.publish_parts("!", target, b"", payload.as_ref())
    }

    pub(crate) fn publish_parts(&mut self, sign: &str, channel: &str, head: &[u8], payload: &[u8]) -> Result<()> {
        self.call(|client| {
            let result = client.publish_until(sign, channel, head, payload, client.usual_deadline());
            client.glance();
            result
        })
    }

    pub(crate) fn publish_until(
        &mut self,
        sign: &str,
        channel: &str,
        head: &[u8],
        payload: &[u8],
        deadline: Deadline,
    ) -> Result<()> {
        let mut packet = std::mem::take(&mut self.out);
        packet.clear();
        let result = append_msg(&mut packet, sign, channel, head, payload);
        let result = result.and_then(|()| self.transmit(&packet, 1, deadline));
        self.out = packet;
        result
    }

    /// Gathers messages into as few packets as possible, if packing was agreed ([`Options::pack`]); otherwise they go
    /// one by one.
    pub fn batch(&mut self) -> Batch<'_> {
        Batch { generation: generation(), client: self, packet: PACK.to_vec(), messages: 0 }
    }

    /// Returns once the daemon has processed everything sent before. The error is the first that the daemon reported
    /// about a message since the last barrier, or [`Error::Unconfirmed`] if the connection broke in between and
    /// messages may be missing.
    pub fn barrier(&mut self) -> Result<()> {
        self.call(|client| client.ask(None, true, client.usual_deadline()))?;
        let doubt = std::mem::take(&mut self.in_doubt);
        let rejections = std::mem::take(&mut self.rejections);
        match self.rejection.take() {
            Some(Error::Rejected { code, text }) if rejections > 1 => {
                Err(Error::Rejected { code, text: format!("{text}; {} more rejected", rejections - 1) })
            }
            Some(error) => Err(error),
            None if doubt > 0 => Err(Error::Unconfirmed(doubt)),
            None => Ok(()),
        }
    }

    // --- subscribing and receiving ---

    /// Subscribes to `pattern`, and returns when the subscription is in force. It stays over reconnections; after an
    /// error there is none.
    pub fn subscribe(&mut self, pattern: &str) -> Result<()> {
        let packet = build_sub("SUB", pattern)?;
        self.call(|client| {
            let waiting = client.backlog.len();
            let result = client.ask(Some(&packet), true, client.usual_deadline());
            match result {
                Ok(()) => client.subscriptions.push(pattern.into()),
                Err(_) if client.asking == Asking::Said => client.withdraw(pattern, waiting),
                Err(_) => {}
            }
            result
        })
    }

    /// Takes back one subscription to `pattern`. It ends the subscription even if the daemon does not answer.
    pub fn unsubscribe(&mut self, pattern: &str) -> Result<()> {
        let packet = build_sub("UNSUB", pattern)?;
        self.call(|client| {
            if !client.forget(pattern) {
                return Err(Error::Invalid(format!("pattern {pattern:?}: not subscribed")));
            }
            let result = client.ask(Some(&packet), false, client.usual_deadline());
            if result.is_err() && client.asking == Asking::Unsaid && client.socket.is_some() {
                client.withdraw(pattern, client.backlog.len());
            }
            result
        })
    }

    fn forget(&mut self, pattern: &str) -> bool {
        let index = self.subscriptions.iter().rposition(|known| known == pattern);
        index.map(|index| self.subscriptions.remove(index)).is_some()
    }

    /// Makes the client receive messages to all (`!`) and to this program. Any subscription does that, too.
    pub fn listen(&mut self) -> Result<()> {
        self.control("listen", "")?;
        self.listening = true;
        Ok(())
    }

    /// Waits for the next message, for ever and over reconnections.
    pub fn recv(&mut self) -> Result<Message> {
        loop {
            if let Some(message) = self.recv_until(None)? {
                return Ok(message);
            }
        }
    }

    /// Waits for the next message; `None` if there is none in time.
    pub fn recv_timeout(&mut self, timeout: Duration) -> Result<Option<Message>> {
        self.recv_until(deadline_in(timeout))
    }

    /// Returns a message that is there already. Whenever the descriptor ([`AsRawFd`]) is readable, call this until it
    /// returns `None`.
    pub fn try_recv(&mut self) -> Result<Option<Message>> {
        self.recv_timeout(Duration::ZERO)
    }

    /// Returns an iterator that waits for messages, without an end of its own.
    pub fn messages(&mut self) -> Messages<'_> {
        Messages { client: self }
    }

    // --- asking ---

    /// Returns the client's src as others see it; without a connection, the last one (in a child of fork, its
    /// parent's).
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Asks the daemon for the client's src.
    pub fn whoami(&mut self) -> Result<String> {
        self.control("whoami", "")
    }

    /// Takes another src, and keeps it over reconnections.
    pub fn set_name(&mut self, name: &str) -> Result<()> {
        self.control("name", name)?;
        self.options.name = Some(name.into());
        Ok(())
    }

    /// Makes the daemon publish `text` on `heartbeat/<name>` every so many seconds, and `leaving` when the client
    /// disconnects. Another call changes the text, and 0 seconds end the heartbeats. They go on over reconnections.
    pub fn heartbeat_start(&mut self, seconds: u32, text: &str) -> Result<()> {
        let value = if seconds == 0 { "off".into() } else { format!("{seconds} {text}").trim_end().to_string() };
        self.control("heartbeat", &value)?;
        self.heartbeat = Some(value).filter(|_| seconds > 0);
        Ok(())
    }

    /// Sends any control request of the protocol and returns its answer. A new connection does not repeat it.
    pub fn control(&mut self, key: &str, value: &str) -> Result<String> {
        self.call(|client| client.ask_control(key, value, client.usual_deadline()))
    }
}

/// The descriptor for poll loops. It stays the same over reconnections, but not over fork.
impl AsRawFd for Client {
    fn as_raw_fd(&self) -> RawFd {
        self.readiness.as_raw_fd()
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("name", &self.name).field("connected", &self.socket.is_some()).finish()
    }
}

/// See [`Client::messages`].
#[derive(Debug)]
pub struct Messages<'a> {
    client: &'a mut Client,
}

impl Iterator for Messages<'_> {
    type Item = Result<Message>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.client.recv())
    }
}

/// See [`Client::batch`]. Dropping a batch sends the rest of it; only [`Batch::flush`] reports errors of that.
#[derive(Debug)]
pub struct Batch<'a> {
    generation: u32, // of the process that gathers
    client: &'a mut Client,
    packet: Vec<u8>,
    messages: u64,
}

impl Batch<'_> {
    /// Adds a message, and sends the packet when it is full. The errors are those of [`Client::publish`], about any
    /// message of the batch.
    pub fn publish(&mut self, channel: &str, payload: impl AsRef<[u8]>) -> Result<()> {
        self.forget_parents();
        let (payload, limit) = (payload.as_ref(), self.client.pack_limit.min(PACK_LIMIT));
        let size = b"MSG \0".len() + channel.len() + payload.len();
        if self.messages > 0 && self.packet.len() + LENGTH_SIZE + size > limit {
            self.flush()?;
        }
        if PACK.len() + LENGTH_SIZE + size > limit {
            return self.client.publish(channel, payload);
        }
        let whole = self.packet.len();
        self.packet.extend_from_slice(&(size as u32).to_be_bytes());
        let result = append_msg(&mut self.packet, "", channel, b"", payload);
        match result {
            Ok(()) => self.messages += 1,
            Err(_) => self.packet.truncate(whole),
        }
        result
    }

    /// Hands the rest of the batch to the daemon, and empties it.
    pub fn flush(&mut self) -> Result<()> {
        self.forget_parents();
        let messages = std::mem::take(&mut self.messages);
        let result = self.client.call(|client| {
            let deadline = client.usual_deadline();
            match messages {
                0 => return Ok(()),
                2.. if self.packet.len() <= client.pack_limit => client.transmit(&self.packet, messages, deadline)?,
                _ => unpack(&self.packet)?.into_iter().try_for_each(|one| client.transmit(one, 1, deadline))?,
            }
            client.glance();
            Ok(())
        });
        self.packet.truncate(PACK.len());
        result
    }

    /// A child of fork does not send what its parent has gathered.
    fn forget_parents(&mut self) {
        if self.generation != generation() {
            self.generation = generation();
            self.messages = 0;
            self.packet.truncate(PACK.len());
        }
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        let _ = self.flush();
    }
}
