//! What a program wants of its client, and what it is told of the connection.

use std::time::Duration;

use crate::{Client, Result};

/// What to ask of the daemon, and how to wait for it. The default is a plain client.
pub struct Options {
    pub(crate) name: Option<String>,
    pub(crate) full: bool,
    pub(crate) pack: bool,
    pub(crate) echo: bool,
    pub(crate) tap: bool,
    pub(crate) separator: char,
    pub(crate) queue: Option<String>,
    pub(crate) timeout: Duration,
    pub(crate) wait: Duration,
    pub(crate) on_notice: Box<dyn FnMut(&Notice) + Send>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            name: None,
            full: false,
            pack: false,
            echo: true,
            tap: false,
            separator: '/',
            queue: None,
            timeout: Duration::from_secs(5),
            wait: Duration::ZERO,
            on_notice: Box::new(|_| ()),
        }
    }
}

impl Options {
    /// The default.
    pub fn new() -> Self {
        Self::default()
    }

    /// Own src, instead of the daemon's `<host>/<program>/<pid>`.
    pub fn name(mut self, name: &str) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Messages with their [`Origin`](crate::Origin).
    pub fn full(mut self, full: bool) -> Self {
        self.full = full;
        self
    }

    /// Many messages in one packet, both ways: many times the throughput for bursts.
    pub fn pack(mut self, pack: bool) -> Self {
        self.pack = pack;
        self
    }

    /// Whether own messages that match are received; they are.
    pub fn echo(mut self, echo: bool) -> Self {
        self.echo = echo;
        self
    }

    /// Every datagram of the segment, too (needs the right).
    pub fn tap(mut self, tap: bool) -> Self {
        self.tap = tap;
        self
    }

    /// Of the tokens in patterns: `/` or `.`.
    pub fn separator(mut self, separator: char) -> Self {
        self.separator = separator;
        self
    }

    /// The daemon's queue for us: `packets=1000 bytes=1000000 policy=drop-oldest`, or parts of it.
    pub fn queue(mut self, queue: &str) -> Self {
        self.queue = Some(queue.into());
        self
    }

    /// How long a call waits for the daemon: to be there again, to answer, to take a message. Five seconds.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// How long `open` keeps trying.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// Called with what happens to the connection, from inside any function of the client.
    pub fn on_notice(mut self, callback: impl FnMut(&Notice) + Send + 'static) -> Self {
        self.on_notice = Box::new(callback);
        self
    }

    /// Connect; `address` as for [`Client::open`].
    pub fn open(self, address: Option<&str>) -> Result<Client> {
        Client::connect(address, self)
    }
}

/// Something that happened to the connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// What.
    pub kind: NoticeKind,
    /// Of messages, where the kind counts some.
    pub count: u64,
    /// A line for people.
    pub text: String,
}

/// See [`Notice`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum NoticeKind {
    /// `count` messages: they came faster than they were read.
    Lost,
    /// Something published, or wanted again, was not taken.
    Rejected,
    /// A right was taken back, and what rests on it has ended.
    Revoked,
    /// The daemon says that it closes the connection, and why.
    Closing,
    /// `count` published messages may not have been taken.
    Disconnected,
    /// There is a connection again, with every subscription in force.
    Reconnected,
}
