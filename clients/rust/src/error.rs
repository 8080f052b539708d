use std::fmt;

/// What can go wrong on the bus: a [`Code`] for programs, and by `Display` a line for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    code: Code,
    text: String,
}

/// A result with [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(crate) fn new(code: Code, text: impl Into<String>) -> Error {
        Error { code, text: text.into() }
    }

    pub(crate) fn invalid(text: impl Into<String>) -> Error {
        Error::new(Code::Invalid, text)
    }

    pub(crate) fn unavailable(text: impl Into<String>) -> Error {
        Error::new(Code::Unavailable, text)
    }

    pub(crate) fn timeout(text: impl Into<String>) -> Error {
        Error::new(Code::Timeout, text)
    }

    pub(crate) fn protocol(text: impl Into<String>) -> Error {
        Error::new(Code::Protocol, text)
    }

    pub(crate) fn closed() -> Error {
        Error::new(Code::Closed, "the client is closed")
    }

    /// Returns what went wrong.
    pub fn code(&self) -> &Code {
        &self.code
    }

    /// Returns the text without the code.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.code.is_of_the_daemon() {
            true => write!(f, "{} ({})", self.text, self.code),
            false => f.write_str(&self.text),
        }
    }
}

impl std::error::Error for Error {}

macro_rules! codes {
    ($($(#[doc = $text:literal])* $name:ident = $word:literal,)*) => {
        /// The kinds of [`Error`]. There may come more of them.
        #[derive(Debug, Clone, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Code {
            $($(#[doc = $text])* $name,)*
            /// A code of the daemon that this version of the client does not know.
            Other(String),
        }

        impl Code {
            /// Returns the word of the protocol: `too-large`, `timeout`, ...
            pub fn as_str(&self) -> &str {
                match self {
                    $(Code::$name => $word,)*
                    Code::Other(word) => word,
                }
            }

            /// The code that this word of the daemon stands for.
            pub(crate) fn of(word: &str) -> Code {
                match word {
                    $($word => Code::$name,)*
                    _ => Code::Other(word.into()),
                }
            }
        }
    };
}

codes! {
    /// An argument cannot be sent at all.
    Invalid = "invalid",
    /// There is no daemon, or it went away and did not come back in time. What the call would have sent was not sent.
    Unavailable = "unavailable",
    /// The connection broke since the last barrier: messages may be missing.
    Unconfirmed = "unconfirmed",
    /// The daemon does not answer or takes no more, or no reply came.
    Timeout = "timeout",
    /// Nobody listens to this request.
    Nobody = "nobody",
    /// Too many messages wait for the program: it must receive before it asks.
    Backlog = "backlog",
    /// The daemon sent a packet that is not of this protocol.
    Protocol = "protocol",
    /// The client is closed, or the subscription.
    Closed = "closed",
    /// The daemon could not read a packet.
    BadPacket = "bad-packet",
    /// No channel looks like this.
    BadChannel = "bad-channel",
    /// The pattern can match nothing.
    BadPattern = "bad-pattern",
    /// A control request does not take this value.
    BadValue = "bad-value",
    /// No name looks like this.
    BadName = "bad-name",
    /// Another client of this host has the name.
    NameTaken = "name-taken",
    /// The client does not hold this subscription.
    NotSubscribed = "not-subscribed",
    /// The message does not fit a datagram, or is too long for a local channel.
    TooLarge = "too-large",
    /// The daemon does not know this control request; it may be older than the client.
    UnknownKey = "unknown-key",
    /// The client has no right to this.
    Refused = "refused",
    /// The client has too many subscriptions, or its process takes names too fast.
    Limit = "limit",
    /// The client sent a PACK that was not agreed.
    NotAgreed = "not-agreed",
    /// A bridged datagram breaks a rule, which the text names.
    BadDatagram = "bad-datagram",
}

impl Code {
    /// Whether the daemon says this, rather than the client.
    pub(crate) fn is_of_the_daemon(&self) -> bool {
        use Code::*;
        !matches!(self, Invalid | Unavailable | Unconfirmed | Timeout | Nobody | Backlog | Protocol | Closed)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[test]
fn codes_are_words_and_unknown_words_are_codes() {
    for word in ["too-large", "timeout", "a-new-one"] {
        assert_eq!(Code::of(word).as_str(), word);
    }
    assert_eq!(Code::of("a-new-one"), Code::Other("a-new-one".into()));
    assert_eq!(Error::new(Code::of("a-new-one"), "CMSG x: no").to_string(), "CMSG x: no (a-new-one)");
    assert_eq!(Error::timeout("too late").to_string(), "too late");
}
