//! What a program wants of its client, and the notices that it gets about the connection.

use std::time::Duration;

use crate::{Client, Result};

/// The settings of a client.
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
    /// Returns the default settings.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the client's src, in place of the daemon's `<host>/<program>/<pid>`.
    pub fn name(mut self, name: &str) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Sets whether messages have their [`Origin`](crate::Origin).
    pub fn full(mut self, full: bool) -> Self {
        self.full = full;
        self
    }

    /// Sets whether several messages share a packet, both ways: bursts are many times faster.
    pub fn pack(mut self, pack: bool) -> Self {
        self.pack = pack;
        self
    }

    /// Sets whether the client gets its own messages that match. The default is true.
    pub fn echo(mut self, echo: bool) -> Self {
        self.echo = echo;
        self
    }

    /// Sets whether the client gets every datagram of the segment, too. It needs the right to tap.
    pub fn tap(mut self, tap: bool) -> Self {
        self.tap = tap;
        self
    }

    /// Sets the separator of the tokens in patterns: `/` or `.`.
    pub fn separator(mut self, separator: char) -> Self {
        self.separator = separator;
        self
    }

    /// Sets what may wait in the daemon: `packets=1000 bytes=1000000 policy=drop-oldest`, or a part of it.
    pub fn queue(mut self, queue: &str) -> Self {
        self.queue = Some(queue.into());
        self
    }

    /// Sets how long a call waits for the daemon. The default is five seconds.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets how long `open` keeps trying. By default it tries once.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// Sets the function that gets notices. Any function of the client may call it.
    pub fn on_notice(mut self, callback: impl FnMut(&Notice) + Send + 'static) -> Self {
        self.on_notice = Box::new(callback);
        self
    }

    /// Connects to `address`, which is as for [`Client::open`].
    pub fn open(self, address: Option<&str>) -> Result<Client> {
        Client::connect(address, self)
    }
}

/// A report of something that happened to the connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// What happened.
    pub kind: NoticeKind,
    /// How many messages it is about, if the kind counts messages.
    pub count: u64,
    /// A line for people.
    pub text: String,
}

/// The kinds of [`Notice`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum NoticeKind {
    /// The daemon dropped `count` messages: this program read too slowly.
    Lost,
    /// The daemon rejected a message, or a setting on a new connection.
    Rejected,
    /// The daemon took back a right, and what rested on it has ended.
    Revoked,
    /// The daemon closes the connection; the text says why.
    Closing,
    /// The connection ended; `count` published messages may not have been taken.
    Disconnected,
    /// There is a connection again, with every subscription in force.
    Reconnected,
}
