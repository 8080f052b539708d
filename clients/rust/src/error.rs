use std::fmt;

/// What can go wrong on the bus. `Display` is a line for people.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The client refuses an argument, which cannot be sent at all.
    Invalid(String),
    /// The daemon rejected a packet.
    Rejected {
        /// A word of the protocol: `too-large`, `bad-pattern`, `refused`, ...
        code: String,
        /// A line for people, which begins with the packet.
        text: String,
    },
    /// There is no daemon, or it went away and did not come back in time.
    Unavailable(String),
    /// The daemon went away: up to so many messages may not have been published.
    Unconfirmed(u64),
    /// The daemon does not answer or takes no more, or no answer to a request came.
    Timeout(String),
    /// So many bytes of messages wait: the program must receive them before it asks.
    Backlog(usize),
    /// The daemon sent a packet that is not of this protocol.
    Protocol(String),
    /// Nobody listens to a request on this channel.
    Nobody(String),
}

/// A result with [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Returns a word for programs: that of the daemon, or one for each kind of error.
    pub fn code(&self) -> &str {
        match self {
            Error::Invalid(_) => "invalid",
            Error::Rejected { code, .. } => code,
            Error::Unavailable(_) => "unavailable",
            Error::Unconfirmed(_) => "unconfirmed",
            Error::Timeout(_) => "timeout",
            Error::Backlog(_) => "backlog",
            Error::Protocol(_) => "protocol",
            Error::Nobody(_) => "nobody",
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Invalid(text) | Error::Unavailable(text) | Error::Timeout(text) | Error::Protocol(text) => {
                f.write_str(text)
            }
            Error::Rejected { code, text } => write!(f, "{text} ({code})"),
            Error::Unconfirmed(count) => {
                write!(f, "the daemon went away: up to {count} messages may not have been published")
            }
            Error::Backlog(size) => write!(f, "{size} bytes of messages wait: receive them"),
            Error::Nobody(channel) => write!(f, "nobody listens to {channel}"),
        }
    }
}

impl std::error::Error for Error {}
