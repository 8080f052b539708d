use std::fmt;

/// What can go wrong on the bus. `Display` is a line for people.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// An argument cannot be sent at all.
    Invalid(String),
    /// The daemon said no. `code` is a word of the protocol (`too-large`, `bad-pattern`, `refused`, ...); `text` begins with
    /// the packet.
    Rejected {
        /// Why.
        code: String,
        /// What, and why, for people.
        text: String,
    },
    /// No daemon, or it went away and did not come back in time.
    Unavailable(String),
    /// It is back, but so many messages that were handed to the one before may not have been published.
    Unconfirmed(u64),
    /// The daemon, or whoever was asked, does not answer; or the daemon takes no more.
    Timeout(String),
    /// This program asks and asks, and does not receive the so many bytes that wait for it.
    Backlog(usize),
    /// The daemon sent what is not of this protocol.
    Protocol(String),
    /// Nobody listens to a request on this channel.
    Nobody(String),
}

/// A result with [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// A word for programs: the daemon's, or one for each kind.
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
