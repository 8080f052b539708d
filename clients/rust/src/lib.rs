//! The client of the bccnd bus: LISTEN/NOTIFY between the programs of a host and of its network segment.
//!
//! ```no_run
//! let mut bus = bccn::Client::open(None)?;
//! bus.subscribe("demo/>")?;
//! bus.publish("demo/greeting", "hello")?;
//! for message in bus.messages() {
//!     let message = message?;
//!     println!("{} {}", message.channel, message.text());
//! }
//! # Ok::<(), bccn::Error>(())
//! ```
//!
//! - One thread at a time uses a client. Calls block; a client starts no thread. For a loop around poll or epoll, or a
//!   reactor, the client has a descriptor: when that is readable, call [`Client::try_recv`] until it returns `None`.
//! - A client reconnects by itself, with every subscription and setting. A call waits for that, as for any answer of
//!   the daemon, up to [`Options::timeout`].
//! - A child of fork may use the client of its parent. The first call opens a connection of its own, with the same
//!   subscriptions, under the name `<parent's name>/<pid>`. Or the child drops that client, which the parent does not
//!   notice, and opens another. Messages that waited for the parent stay with the parent.
//!
//! The crate is for Linux only.
#![warn(missing_docs)]

mod client;
mod error;
mod link;
mod options;
mod protocol;
mod request;
mod socket;
#[cfg(test)]
mod vectors;

pub use client::{Batch, Client, Messages};
pub use error::{Error, Result};
pub use options::{Notice, NoticeKind, Options};
pub use protocol::{matches, Message, Origin};
pub use request::Request;
