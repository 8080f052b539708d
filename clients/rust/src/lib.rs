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
//! - A client belongs to one thread at a time, and blocks; it starts no thread of its own. For loops around poll, epoll or
//!   a reactor it has a descriptor: when that is readable, call [`Client::try_recv`] until it gives nothing.
//! - The connection is made again by itself when it breaks, with every subscription and setting. Calls wait for that, as for
//!   anything of the daemon, up to [`Options::timeout`].
//! - A child of fork may go on with its parent's client: its first call makes a connection of its own, subscribed alike,
//!   named `<parent's name>/<pid>` (pattern B of the protocol's document); or it drops it, which the parent does not feel,
//!   and opens its own (pattern A). What waited for the parent stays the parent's. Linux only.
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
