//! A session outlives its connections. It remembers what the program wants, sends all of that to each new connection,
//! and keeps what it has received until the program takes it.
//!
//! ```text
//! program <- receive  <- inbox            <- read_packet <- socket
//! program <- request  <- exchange.replies <-/
//! program <- ask      <- ask.answer       <-/
//! ```
//!
//! Rules:
//! 1. No function here waits: it does what can be done now. `operations.rs` waits, without the lock of the session, and
//!    then tries again; so any number of threads or tasks use one session, and each may read what another waits for.
//! 2. The session remembers name, options, watches and subscriptions; a greeting says all of them on a new connection. Until it
//!    is answered, nothing else is sent.
//! 3. One question at a time is asked: a packet, and a numbered ping. When the pong arrives, everything that the daemon
//!    has to say about the packet has arrived. A late pong to an earlier question has another number.
//! 4. Who waits for room keeps reading unless the inbox is full; otherwise two programs that wait for each other would
//!    wait for ever. A connection that has ended is read to its end.
//! 5. Messages that the program does not receive wait in the bounded queue of the daemon. The session drops messages
//!    only of a stream that nobody reads, while the program receives from another.
//! 6. A subscribe that fails leaves nothing. A pattern is held once the daemon has agreed to it. If the SUB of a failed
//!    call has left, it is withdrawn: an UNSUB and a ping follow, and until the pong the session drops the messages that
//!    came for it alone.
//! 7. A child of fork becomes a source of its own when it locks the session.

use std::collections::VecDeque;
use std::mem::take;
use std::sync::Arc;
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use crate::error::Code;
use crate::inbox::{Callback, Inbox};
use crate::notice::{Notice, NoticeKind};
use crate::protocol::Handle;
use crate::request::Exchange;
use crate::socket::{generation, random, watch_forks, Bell, Readiness, Socket};
use crate::watch::Watch;
use crate::{Error, Options, Result, Tap};

/// When a wait ends; `None`: never.
pub(crate) type Deadline = Option<Instant>;

/// Bytes; no packet of the daemon is longer (clients/PROTOCOL.md, "The socket"). One byte more would show that it is.
pub(crate) const PACKET_LIMIT: usize = 128 << 10;
/// With so many bytes of messages waiting, calls that ask the daemon fail.
pub(crate) const BACKLOG_LIMIT: usize = 64 << 20;
/// A call that began below that gives up here: what the daemon had queued comes before its answer.
pub(crate) const OVERFLOW_LIMIT: usize = 2 * BACKLOG_LIMIT;

/// A program that only sends still reads what the daemon reports: how often, until how many bytes wait, and how many
/// packets at a time.
pub(crate) const GLANCE_INTERVAL: Duration = Duration::from_millis(100);
pub(crate) const GLANCE_LIMIT: usize = 1 << 20;
pub(crate) const GLANCE_PACKETS: usize = 1024;

/// Notices that wait for the program; the oldest give way. The daemon can send any number of them during one call.
const NOTICES_LIMIT: usize = 1024;

/// A failed connect(2) to a local socket costs microseconds, so the first pause is short.
pub(crate) const BACKOFF_FIRST: Duration = Duration::from_millis(20);

pub(crate) fn deadline_in(time: Duration) -> Deadline {
    Instant::now().checked_add(time)
}

pub(crate) fn is_past(deadline: Deadline) -> bool {
    deadline.is_some_and(|at| Instant::now() >= at)
}

/// What to wait for: something to read, room to send, a time; and any change of the session since it was `seen`.
#[derive(Clone, Copy)]
pub(crate) struct Wait {
    pub(crate) read: bool,
    pub(crate) room: bool,
    pub(crate) until: Deadline,
    pub(crate) seen: u64,
}

/// What came of a packet that was to be sent.
#[derive(PartialEq, Eq)]
pub(crate) enum Sent {
    Yes,
    Full,
    NoMemory, // of the kernel; poll(2) does not wait for that
}

/// What the session remembers when the daemon has agreed.
#[derive(Clone)]
pub(crate) enum Change {
    Nothing,
    Hold(u64),
    Hear, // listen for replies alone
    Listen(Option<Callback>),
    Name(String),
    Watch(Watch),
    Unwatch(String),
    Heartbeat(Option<String>),
}

/// The question that is being asked.
pub(crate) struct Ask {
    pub(crate) ticket: u64,
    pub(crate) connection: u64, // on which it was begun
    pub(crate) said: bool,      // its packet has left there
    pub(crate) number: u64,     // of its ping; 0: not sent yet
    pub(crate) published: u64,  // before the ping
    pub(crate) key: String,     // of the answer that is kept; empty: none
    pub(crate) change: Change,
    pub(crate) answer: Option<String>,
    pub(crate) complaint: Option<Error>,
    pub(crate) answered: bool,
}

impl Ask {
    pub(crate) fn new(ticket: u64, key: String, change: Change) -> Ask {
        Ask {
            ticket,
            connection: 0,
            said: false,
            number: 0,
            published: 0,
            key,
            change,
            answer: None,
            complaint: None,
            answered: false,
        }
    }
}

/// An UNSUB or unwatch that nobody waits for.
pub(crate) struct Withdrawal {
    packet: String,
    pub(crate) pattern: Option<String>, // of an UNSUB
    said: bool,                         // the packet has left
    pub(crate) ping: u64,               // the number of the ping behind it; 0: not sent yet
}

/// What a new connection is told.
pub(crate) struct Greeting {
    pub(crate) packets: VecDeque<Vec<u8>>,
    pub(crate) number: u64, // of its ping
    pub(crate) until: Deadline,
    pub(crate) complaint: Option<Error>,
    pub(crate) answered: bool,
}

pub(crate) struct Session {
    // what the program wants
    pub(crate) options: Options,
    pub(crate) heartbeat: Option<String>,
    pub(crate) watches: Vec<Watch>,
    pub(crate) hearing: bool, // listens, but only for replies
    pub(crate) closed: bool,
    pub(crate) inbox: Inbox,

    // the connection
    generation: u32, // of the process that opened the connection
    pub(crate) socket: Option<Arc<Socket>>,
    pub(crate) connection: u64, // the number of the connection, once its greeting is composed
    pub(crate) greeting: Option<Greeting>,
    pub(crate) was_connected: bool,
    pub(crate) retry_at: Instant,
    pub(crate) backoff: Duration,
    pub(crate) unreachable: String, // why there is no connection
    pub(crate) busy: bool,          // a daemon is there, and accepts no more at this moment
    pub(crate) name: String,
    pub(crate) pack_limit: usize, // bytes; 0: packing is not agreed
    pub(crate) buffer: Vec<u8>,
    pub(crate) out: Vec<u8>,        // empty or old; it keeps its memory
    pub(crate) glance_at: Duration, // by coarse_time

    // asked and published
    pub(crate) ask: Option<Ask>,
    pub(crate) numbers: u64, // of tickets, tokens and pings
    pub(crate) withdrawn: Vec<Withdrawal>,
    pub(crate) overhears: bool, // a SUB that was withdrawn makes the daemon deliver `!`
    pub(crate) published: u64,
    pub(crate) confirmed: u64,
    pub(crate) in_doubt: u64,
    pub(crate) rejection: Option<Error>, // the first since the last barrier
    pub(crate) rejections: u64,
    pub(crate) token: String, // the beginning of the token of each request
    pub(crate) exchanges: Vec<Exchange>,

    // for the program
    pub(crate) missing: u64, // before the next message
    pub(crate) lost: u64,
    pub(crate) notices: VecDeque<Notice>,
    pub(crate) news: bool,             // of watches, perhaps
    pub(crate) garbage: Vec<Callback>, // to be dropped without the lock
    pub(crate) ended: Vec<Watch>,      // so, too
    pub(crate) handle: Handle,

    // for those who wait
    pub(crate) changes: u64,
    pub(crate) waiting: usize, // threads or tasks that wait for a change
    pub(crate) readers: usize, // of them, those that wait for something to read, and for room
    pub(crate) writers: usize,
    pub(crate) polled: Option<(bool, bool)>, // a thread waits at the socket for all: to read, for room
    pub(crate) rung: bool,                   // the bell rings for it
    pub(crate) bell: Arc<Bell>,
    pub(crate) calling: Option<ThreadId>,
    pub(crate) telling: Option<ThreadId>,
    pub(crate) readiness: Readiness,
    earlier: Vec<Readiness>, // of the processes before a fork: the program may still have the descriptor
    pub(crate) watched: bool, // the program has asked for the descriptor
    opened: Instant,
}

impl Session {
    /// A session without a connection.
    pub(crate) fn new(options: Options, handle: Handle) -> Result<Session> {
        let made = watch_forks().and_then(|()| Ok((Readiness::new()?, Bell::new()?, random()?)));
        let (readiness, bell, token) = made.map_err(|error| Error::unavailable(format!("no descriptor: {error}")))?;
        let now = Instant::now();
        Ok(Session {
            options,
            heartbeat: None,
            watches: Vec::new(),
            hearing: false,
            closed: false,
            inbox: Inbox::default(),
            generation: generation(),
            socket: None,
            connection: 0,
            greeting: None,
            was_connected: false,
            retry_at: now,
            backoff: BACKOFF_FIRST,
            unreachable: "not connected".into(),
            busy: false,
            name: String::new(),
            pack_limit: 0,
            buffer: vec![0; PACKET_LIMIT + 1],
            out: Vec::new(),
            glance_at: Duration::ZERO,
            ask: None,
            numbers: 0,
            withdrawn: Vec::new(),
            overhears: false,
            published: 0,
            confirmed: 0,
            in_doubt: 0,
            rejection: None,
            rejections: 0,
            token: format!("{token:016x}."),
            exchanges: Vec::new(),
            missing: 0,
            lost: 0,
            notices: VecDeque::new(),
            news: false,
            garbage: Vec::new(),
            ended: Vec::new(),
            handle,
            changes: 0,
            waiting: 0,
            readers: 0,
            writers: 0,
            polled: None,
            rung: false,
            bell: Arc::new(bell),
            calling: None,
            telling: None,
            readiness,
            earlier: Vec::new(),
            watched: false,
            opened: now,
        })
    }

    /// Makes the session of a child of fork a source of its own, without the messages of its parent
    /// (clients/PROTOCOL.md, "Names and numbers").
    pub(crate) fn own_process(&mut self) -> Result<()> {
        if self.generation == generation() {
            return Ok(());
        }
        let fresh = Session::new(Options::new(), self.handle.clone())?;
        let here = |thread: Option<ThreadId>| thread.filter(|id| *id == std::thread::current().id());
        let mut child = Session {
            options: take(&mut self.options),
            heartbeat: take(&mut self.heartbeat),
            watches: take(&mut self.watches),
            hearing: self.hearing,
            closed: self.closed,
            inbox: take(&mut self.inbox),
            connection: self.connection,
            numbers: self.numbers,
            changes: self.changes + 1,
            calling: here(self.calling),
            telling: here(self.telling),
            earlier: take(&mut self.earlier),
            watched: self.watched,
            ..fresh
        };
        if !self.name.is_empty() {
            child.options.name = Some(format!("{}/{}", self.name, std::process::id()));
            child.name.clone_from(&self.name);
        }
        child.garbage = child.inbox.clear();
        let parent = std::mem::replace(self, child); // closes only copies of the parent's descriptors
        self.earlier.push(parent.readiness);
        Ok(())
    }

    pub(crate) fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    pub(crate) fn wait(&self, read: bool, room: bool, until: Deadline) -> Wait {
        Wait { read, room, until, seen: self.changes }
    }

    pub(crate) fn notify(&mut self, kind: NoticeKind, count: u64, code: Option<Code>, text: impl Into<String>) {
        let text = text.into();
        match self.notices.back_mut() {
            // Equal refusals are one notice.
            Some(last) if kind == NoticeKind::Rejected && last.kind == kind && last.text == text => last.count += count,
            _ => self.notices.push_back(Notice { kind, count, code, text }),
        }
        if self.notices.len() > NOTICES_LIMIT {
            self.notices.pop_front();
        }
    }

    /// For poll loops: makes the descriptor readable while there is something to do.
    pub(crate) fn ring(&mut self) {
        let ended = self.closed || (self.was_connected && !self.options.reconnect);
        self.readiness.ring(match &self.socket {
            _ if !self.inbox.is_empty() => Some(self.opened),
            None if ended => Some(self.opened),
            None => Some(self.retry_at),
            Some(_) => self.greeting.as_ref().and_then(|greeting| greeting.until),
        });
    }

    /// Wakes the thread that waits at the socket.
    pub(crate) fn ring_bell(&mut self) {
        if self.polled.is_some() && !std::mem::replace(&mut self.rung, true) {
            self.bell.ring();
        }
    }

    pub(crate) fn readiness(&self) -> &Readiness {
        &self.readiness
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.socket.is_some() && self.greeting.is_none()
    }

    // --- withdrawing ---

    /// Has an UNSUB sent, without waiting for it. What came for it since that serial number reaches nobody.
    pub(crate) fn withdraw(&mut self, pattern: &str, since: u64) {
        self.send_later(format!("UNSUB {pattern}"), Some(pattern.into()));
        self.sift(since);
    }

    /// Drops what came since that serial number for nothing but what has failed.
    pub(crate) fn sift(&mut self, since: u64) {
        self.overhears = true;
        let mut inbox = take(&mut self.inbox);
        self.missing += inbox.drop_since(since, |subscriptions, message| self.is_unwanted(subscriptions, message));
        self.inbox = inbox;
    }

    /// Has an UNSUB of this pattern sent, or an unwatch, without waiting for it.
    pub(crate) fn send_later(&mut self, packet: String, pattern: Option<String>) {
        self.withdrawn.push(Withdrawal { packet, pattern, said: false, ping: 0 });
        if self.is_connected() {
            let _ = self.take_back(); // what finds no room goes before the next question
        }
    }

    /// Sends what is left to send of withdrawals, while there is room.
    pub(crate) fn take_back(&mut self) -> Result<Sent> {
        while let Some(index) = self.withdrawn.iter().position(|each| each.ping == 0) {
            if !self.withdrawn[index].said {
                let packet = self.withdrawn[index].packet.clone();
                match self.send(packet.as_bytes())? {
                    Sent::Yes => self.withdrawn[index].said = true,
                    other => return Ok(other),
                }
            }
            let number = self.number();
            match self.send(format!("CMSG ping\0{number}").as_bytes())? {
                Sent::Yes => self.withdrawn[index].ping = number,
                other => return Ok(other),
            }
        }
        Ok(Sent::Yes)
    }

    pub(crate) fn taps(&self) -> bool {
        self.options.tap != Tap::Off
    }

    pub(crate) fn check_backlog(&self) -> Result<()> {
        match self.inbox.bytes() {
            size if size > BACKLOG_LIMIT => {
                Err(Error::new(Code::Backlog, format!("{size} bytes of messages wait: receive them")))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::inbox::Source;
    use crate::{Message, Separator};

    fn session() -> Session {
        Session::new(Options::new(), Handle::default()).expect("descriptors")
    }

    #[test]
    fn notices_that_wait_are_bounded() {
        let mut session = session();
        for number in 0..2 * NOTICES_LIMIT as u64 {
            session.notify(NoticeKind::Lost, number, None, "");
        }
        assert_eq!(session.notices.len(), NOTICES_LIMIT);
        assert_eq!(session.notices.back().map(|notice| notice.count), Some(2 * NOTICES_LIMIT as u64 - 1));
    }

    #[test]
    fn a_callback_that_is_too_slow_stops_reading() {
        let mut session = session();
        session.inbox.add("a", Some(Arc::new(Mutex::new(|_: &crate::Client, _| ()))));
        session.inbox.put(Message::new("a".into(), vec![0; BACKLOG_LIMIT + 1], None), Separator::Slash);
        let other = std::thread::spawn(|| std::thread::current().id()).join().unwrap();
        session.calling = Some(other);
        let wait = session.read_on(Source::Client, None).unwrap().expect("something to wait for");
        assert!(!wait.read && !wait.room);
        session.calling = Some(std::thread::current().id());
        assert_eq!(session.read_on(Source::Client, None).err().map(|error| error.code().clone()), Some(Code::Backlog));
    }
}
