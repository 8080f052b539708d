//! What a program wants of its client.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io::Write;
use std::str::FromStr;
use std::time::Duration;

use crate::error::Code;
use crate::{Client, Error, Notice, Result};

pub(crate) type OnNotice = Box<dyn FnMut(&Notice) + Send>;

/// The settings of a client, each with its default: `Options::new().format(Format::Full).open()`.
#[must_use]
pub struct Options {
    pub(crate) path: Option<OsString>,
    pub(crate) name: Option<String>,
    pub(crate) format: Format,
    pub(crate) pack: bool,
    pub(crate) echo: bool,
    pub(crate) tap: Tap,
    pub(crate) separator: Separator,
    pub(crate) queue: Queue,
    pub(crate) reconnect: bool,
    pub(crate) timeout: Duration,
    pub(crate) wait: Duration,
    pub(crate) on_notice: OnNotice,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            path: None,
            name: None,
            format: Format::Plain,
            pack: false,
            echo: true,
            tap: Tap::Off,
            separator: Separator::Slash,
            queue: Queue::new(),
            reconnect: true,
            timeout: Duration::from_secs(5),
            wait: Duration::ZERO,
            on_notice: Box::new(|notice| {
                let _ = writeln!(std::io::stderr(), "bccn: {}", notice.text); // unlike eprintln, without a panic
            }),
        }
    }
}

impl Options {
    /// Returns the default settings.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the address of the daemon: a path, or `@name` (abstract). By default it is the first of `$BCCN_SOCKET`,
    /// `/run/bccnd/bus.sock` and `$XDG_RUNTIME_DIR/bccnd/bus.sock`.
    pub fn path(mut self, path: impl AsRef<OsStr>) -> Self {
        self.path = Some(path.as_ref().into());
        self
    }

    /// Sets the client's src, in place of the daemon's `<host>/<program>/<pid>`.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Sets whether messages have their [`Origin`](crate::Origin). The default is [`Format::Plain`]: they have none.
    pub fn format(mut self, format: Format) -> Self {
        self.format = format;
        self
    }

    /// Sets whether several messages share a packet, both ways: bursts are many times faster. The default is false.
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
    pub fn tap(mut self, tap: Tap) -> Self {
        self.tap = tap;
        self
    }

    /// Sets the separator of the tokens in patterns. The default is [`Separator::Slash`].
    pub fn separator(mut self, separator: Separator) -> Self {
        self.separator = separator;
        self
    }

    /// Sets what may wait for this client in the daemon. The default is the daemon's.
    pub fn queue(mut self, queue: Queue) -> Self {
        self.queue = queue;
        self
    }

    /// Sets whether the client connects again when the connection has ended. The default is true; otherwise calls
    /// fail with [`Code::Unavailable`] from then on.
    pub fn reconnect(mut self, reconnect: bool) -> Self {
        self.reconnect = reconnect;
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

    /// Sets the function that gets notices, in place of a line on stderr for each. Any call may call it, in its own
    /// thread; one that the function itself makes does not.
    pub fn on_notice(mut self, function: impl FnMut(&Notice) + Send + 'static) -> Self {
        self.on_notice = Box::new(function);
        self
    }

    /// Connects to the daemon.
    pub fn open(self) -> Result<Client> {
        Client::connect(self)
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options").field("path", &self.path).field("name", &self.name).finish_non_exhaustive()
    }
}

/// How messages are delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// With channel and payload.
    Plain,
    /// With their [`Origin`](crate::Origin), too.
    Full,
}

/// Which datagrams of the segment a client gets besides its messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Tap {
    /// None.
    Off,
    /// Every one that is sent, received or refused here.
    On,
    /// The same, and [`Origin::interface`](crate::Origin::interface) says by which interface.
    Interface,
}

/// What divides a pattern into tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Separator {
    /// `/`
    Slash,
    /// `.`
    Dot,
}

impl Separator {
    /// Returns the separator itself.
    pub fn as_char(self) -> char {
        match self {
            Separator::Slash => '/',
            Separator::Dot => '.',
        }
    }
}

/// What happens when no more may wait for a client in the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Policy {
    /// The oldest messages make room.
    DropOldest,
    /// New messages are dropped.
    DropNewest,
    /// Publishers of this host wait.
    Block,
    /// The daemon closes the connection.
    Disconnect,
}

impl Policy {
    /// Returns the word of the protocol: `drop-oldest`, `drop-newest`, `block` or `disconnect`.
    pub fn as_str(self) -> &'static str {
        match self {
            Policy::DropOldest => "drop-oldest",
            Policy::DropNewest => "drop-newest",
            Policy::Block => "block",
            Policy::Disconnect => "disconnect",
        }
    }
}

/// Reads what [`Policy::as_str`] returns; another word is [`Code::BadValue`].
impl FromStr for Policy {
    type Err = Error;

    fn from_str(word: &str) -> Result<Policy> {
        let all = [Policy::DropOldest, Policy::DropNewest, Policy::Block, Policy::Disconnect];
        let found = all.into_iter().find(|policy| policy.as_str() == word);
        found.ok_or_else(|| Error::new(Code::BadValue, format!("{word:?} is no policy of a queue")))
    }
}

/// How much may wait for a client in the daemon. What is not set is the daemon's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[must_use]
pub struct Queue {
    packets: Option<u64>,
    bytes: Option<u64>,
    policy: Option<Policy>,
}

impl Queue {
    /// Returns the daemon's bounds.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets how many messages may wait.
    pub fn packets(mut self, packets: u64) -> Self {
        self.packets = Some(packets);
        self
    }

    /// Sets how many bytes of messages may wait.
    pub fn bytes(mut self, bytes: u64) -> Self {
        self.bytes = Some(bytes);
        self
    }

    /// Sets what happens beyond that.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = Some(policy);
        self
    }

    /// The value of the control request; `None` if nothing is set.
    pub(crate) fn value(&self) -> Option<String> {
        let packets = self.packets.map(|packets| format!("packets={packets}"));
        let bytes = self.bytes.map(|bytes| format!("bytes={bytes}"));
        let policy = self.policy.map(|policy| format!("policy={}", policy.as_str()));
        let fields: Vec<_> = packets.into_iter().chain(bytes).chain(policy).collect();
        Some(fields.join(" ")).filter(|value| !value.is_empty())
    }
}
