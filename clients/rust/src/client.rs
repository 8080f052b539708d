//! Rules:
//! 1. What is wanted (name, options, subscriptions, ...) is kept here and outlives a connection; `greet` says all of it to a
//!    new one.
//! 2. Whoever waits for the daemon sends a ping with a number after the request. Everything the daemon had to say about the
//!    request has come when its pong comes, and a late answer to an earlier one cannot be mistaken for it.
//! 3. The socket does not block; every wait is a poll(2) with a deadline, and goes on reading unless the backlog is full, or
//!    two who wait for each other would wait for ever. A connection that ends is read to its end first.
//! 4. Nothing is dropped here. Only who asks for messages reads on; the rest waits in the daemon's queue, which is bounded.
//! 5. Every function begins and ends in `call`, where a child of fork becomes a sender of its own.

use std::collections::VecDeque;
use std::os::fd::{AsRawFd, RawFd};
use std::time::{Duration, Instant};

use crate::link::{deadline_in, Deadline, BACKOFF_FIRST, PACKET_ROOM};
use crate::protocol::{append_msg, build_sub, unpack, Message, LENGTH_SIZE, PACK, PACK_LIMIT};
use crate::request::Exchange;
use crate::socket::{generation, random, watch_forks, Readiness, Socket};
use crate::{Error, Options, Result};

/// A program's place on the bus of its host.
pub struct Client {
    // wanted
    pub(crate) options: Options,
    pub(crate) address: Option<String>,
    pub(crate) heartbeat: Option<String>,
    pub(crate) subscriptions: Vec<String>,
    pub(crate) listening: bool,
    pub(crate) hearing: bool, // listening, but only for answers

    // the connection
    pub(crate) generation: u32, // of the process whose connection it is
    pub(crate) socket: Option<Socket>,
    pub(crate) readiness: Readiness,
    pub(crate) was_connected: bool,
    pub(crate) greeting: bool,
    pub(crate) retry_at: Instant,
    pub(crate) backoff: Duration,
    pub(crate) unreachable: String, // why there is no connection
    pub(crate) glance_at: Instant,
    pub(crate) name: String,
    pub(crate) pack_limit: usize, // bytes; 0: not agreed
    pub(crate) buffer: Vec<u8>,
    pub(crate) out: Vec<u8>,

    // asked and published
    pub(crate) asked: u64, // the number of the last ping, and of the last pong
    pub(crate) answered: u64,
    pub(crate) awaited: String, // the key whose answer is wanted; empty: none
    pub(crate) answer: Option<String>,
    pub(crate) complaint: Option<Error>, // about what was asked since the last pong
    pub(crate) published: u64,
    pub(crate) published_when_asked: u64,
    pub(crate) confirmed: u64,
    pub(crate) in_doubt: u64,
    pub(crate) rejection: Option<Error>, // the first since the last barrier
    pub(crate) rejections: u64,
    pub(crate) token: String, // what the tokens of our requests begin with
    pub(crate) requests: u64,
    pub(crate) exchange: Option<Exchange>,

    // received
    pub(crate) opened: Instant,
    pub(crate) backlog: VecDeque<Message>,
    pub(crate) backlog_size: usize,
    pub(crate) lost: u64, // before the next message
}

impl Client {
    /// Connect to `address`: a path, `@name` (abstract), or None: `$BCCN_SOCKET`, else `/run/bccnd/bus.sock`, else that of
    /// `$XDG_RUNTIME_DIR`. Dropping the client lets go of the connection at once: call [`Client::barrier`] first to know
    /// that all has arrived.
    pub fn open(address: Option<&str>) -> Result<Client> {
        Options::new().open(address)
    }

    /// Wanted as told, with nothing else yet.
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
            glance_at: now,
            name: String::new(),
            pack_limit: 0,
            buffer: vec![0; PACKET_ROOM],
            out: Vec::new(),
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

    /// Hand one message to the daemon; waits only while it is away or takes no more. What the daemon then rejects is a notice,
    /// and the error of the next [`Client::barrier`]. After an error it was not sent.
    pub fn publish(&mut self, channel: &str, payload: impl AsRef<[u8]>) -> Result<()> {
        self.publish_parts("", channel, b"", payload.as_ref())
    }

    /// The name of `publish` in the document of the protocol.
    pub fn send_topic(&mut self, channel: &str, payload: impl AsRef<[u8]>) -> Result<()> {
        self.publish(channel, payload)
    }

    /// To every listening program of the segment.
    pub fn send_all(&mut self, payload: impl AsRef<[u8]>) -> Result<()> {
        self.publish("!", payload)
    }

    /// To the program whose src is `target`, or to all below it.
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

    /// Gather messages into as few packets as can be, where [`Options::pack`] was agreed; otherwise they go one by one.
    pub fn batch(&mut self) -> Batch<'_> {
        Batch { generation: generation(), client: self, packet: PACK.to_vec(), messages: 0 }
    }

    /// Return once the daemon has processed everything sent before. An error is the first that it had against a message since
    /// the last barrier; [`Error::Unconfirmed`] when the connection broke in between and messages may be missing.
    pub fn barrier(&mut self) -> Result<()> {
        self.call(|client| client.ask(None, true, client.usual_deadline()))?;
        let doubt = std::mem::take(&mut self.in_doubt);
        let rejections = std::mem::take(&mut self.rejections);
        match self.rejection.take() {
            Some(Error::Rejected { code, text }) if rejections > 1 => {
                Err(Error::Rejected { code, text: format!("{text}; so were {} more", rejections - 1) })
            }
            Some(error) => Err(error),
            None if doubt > 0 => Err(Error::Unconfirmed(doubt)),
            None => Ok(()),
        }
    }

    // --- subscribing and receiving ---

    /// Return when the subscription is in force. It is kept over reconnections, but for [`Error::Rejected`].
    pub fn subscribe(&mut self, pattern: &str) -> Result<()> {
        let packet = build_sub("SUB", pattern)?;
        self.call(|client| {
            let deadline = client.usual_deadline();
            client.ensure(deadline)?;
            client.subscriptions.push(pattern.into());
            let result = client.ask(Some(&packet), false, deadline);
            if matches!(result, Err(Error::Rejected { .. })) {
                client.forget(pattern);
            }
            result
        })
    }

    /// Take back one subscription to that pattern.
    pub fn unsubscribe(&mut self, pattern: &str) -> Result<()> {
        let packet = build_sub("UNSUB", pattern)?;
        self.call(|client| {
            let deadline = client.usual_deadline();
            client.ensure(deadline)?;
            if !client.forget(pattern) {
                return Err(Error::Invalid(format!("pattern {pattern:?}: not subscribed")));
            }
            client.ask(Some(&packet), false, deadline)
        })
    }

    fn forget(&mut self, pattern: &str) -> bool {
        let place = self.subscriptions.iter().rposition(|known| known == pattern);
        place.map(|place| self.subscriptions.remove(place)).is_some()
    }

    /// Receive messages to all (`!`) and to this program; who subscribes to anything does anyway.
    pub fn listen(&mut self) -> Result<()> {
        self.control("listen", "")?;
        self.listening = true;
        Ok(())
    }

    /// The next message; waits for ever, through reconnections.
    pub fn recv(&mut self) -> Result<Message> {
        loop {
            if let Some(message) = self.recv_until(None)? {
                return Ok(message);
            }
        }
    }

    /// The next message; None when there was none in time.
    pub fn recv_timeout(&mut self, timeout: Duration) -> Result<Option<Message>> {
        self.recv_until(deadline_in(timeout))
    }

    /// A message that is there already. Whenever the descriptor ([`AsRawFd`]) is readable, call it until it gives None.
    pub fn try_recv(&mut self) -> Result<Option<Message>> {
        self.recv_timeout(Duration::ZERO)
    }

    /// An iterator that waits for messages; it ends only if the loop around it does.
    pub fn messages(&mut self) -> Messages<'_> {
        Messages { client: self }
    }

    // --- asking ---

    /// Own src, as others see it; while there is no connection the last one (in a child of fork its parent's).
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Ask the daemon for the own src.
    pub fn whoami(&mut self) -> Result<String> {
        self.control("whoami", "")
    }

    /// Take another src; kept over reconnections.
    pub fn set_name(&mut self, name: &str) -> Result<()> {
        self.control("name", name)?;
        self.options.name = Some(name.into());
        Ok(())
    }

    /// Have the daemon say on `heartbeat/<name>` every so many seconds that we are there, and `leaving` when we leave. `text`
    /// says how we are; another call changes it, 0 seconds end it. Kept over reconnections.
    pub fn heartbeat_start(&mut self, seconds: u32, text: &str) -> Result<()> {
        let value = if seconds == 0 { "off".into() } else { format!("{seconds} {text}").trim_end().to_string() };
        self.control("heartbeat", &value)?;
        self.heartbeat = Some(value).filter(|_| seconds > 0);
        Ok(())
    }

    /// Any control request of the protocol; its answer. It is not said again to a new connection.
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

/// See [`Client::batch`]. What is left is sent when it is dropped, whose errors only [`Batch::flush`] tells.
#[derive(Debug)]
pub struct Batch<'a> {
    generation: u32, // of the process that gathers
    client: &'a mut Client,
    packet: Vec<u8>,
    messages: u64,
}

impl Batch<'_> {
    /// Add a message, and send what is full. Errors are those of [`Client::publish`], about any message of the batch.
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

    /// Hand what is left to the daemon, and begin anew.
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

    /// What a parent gathered is not for its child of fork to send.
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
