/// A report of something that belongs to no call.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Notice {
    /// What happened.
    pub kind: NoticeKind,
    /// How many messages it is about, if the kind counts.
    pub count: u64,
    /// The code of the daemon, if it rejected something.
    pub code: Option<crate::Code>,
    /// A line for people.
    pub text: String,
}

/// The kinds of [`Notice`]. There may come more of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
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
    /// The connection has ended; `count` published messages were perhaps not taken.
    Disconnected,
    /// There is a connection again, with every subscription in force.
    Reconnected,
    /// `count` messages were dropped that waited in a stream which the program does not receive.
    Unclaimed,
}
