// Its programs are tested with all features, as one is for tokio.
#![cfg_attr(any(feature = "tokio", not(doctest)), doc = include_str!("../README.md"))]
#![warn(missing_docs)]
#![warn(clippy::exhaustive_enums, clippy::exhaustive_structs)] // what a later version may add to breaks nobody

mod batch;
mod client;
mod connection;
mod error;
mod inbox;
mod json;
mod notice;
mod operations;
mod options;
mod protocol;
#[cfg(feature = "tokio")]
mod reactor;
mod reading;
mod request;
mod session;
mod shared;
mod socket;
mod subscription;
#[cfg(feature = "tokio")]
mod tasks;
#[cfg(test)]
mod vectors;
mod watch;

#[cfg(feature = "tokio")]
pub use batch::AsyncBatch;
pub use batch::Batch;
pub use client::{Client, Messages, Replies};
pub use error::{Code, Error, Result};
pub use notice::{Notice, NoticeKind};
pub use options::{Format, Options, Policy, Queue, Separator, Tap};
pub use protocol::{matches, Message, Origin};
pub use request::Request;
pub use subscription::{Subscription, SubscriptionMessages};
#[cfg(feature = "tokio")]
pub use tasks::{AsyncClient, AsyncReplies, AsyncSubscription};

/// The version of this crate.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
