use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::client::unless_closed;
use crate::inbox::{Source, Target};
use crate::session::{deadline_in, Deadline};
use crate::{Client, Error, Message, Result};

/// A subscription of a [`Client`].
///
/// Its messages are in the stream of the client until the program asks the subscription for them. From then on it is a
/// stream of its own, and what waits for it moves over.
///
/// To drop it does not end it: its messages go on, in the stream of the client. To end it call [`Subscription::close`].
pub struct Subscription {
    pub(crate) client: Client,
    pub(crate) id: u64,
    pattern: String,
    own: AtomicBool, // it has become a stream
}

impl Subscription {
    pub(crate) fn new(client: &Client, id: u64, pattern: &str) -> Subscription {
        Subscription { client: client.clone(), id, pattern: pattern.into(), own: AtomicBool::new(false) }
    }

    /// Returns the pattern.
    pub fn pattern(&self) -> &str {
        &self.pattern
    }

    /// Ends the subscription at once, even if the daemon does not answer. What waits for it alone is dropped. To close
    /// it again does nothing.
    pub fn close(&self) -> Result<()> {
        self.client.run(self.client.shared.unsubscribe(self.id))
    }

    /// Waits for the next message of this subscription, for ever and over reconnections, and calls the callbacks
    /// meanwhile. It fails with [`Code::Closed`](crate::Code::Closed) when the subscription or the client is closed.
    pub fn receive(&self) -> Result<Message> {
        loop {
            if let Some(message) = self.receive_until(|| None)? {
                return Ok(message);
            }
        }
    }

    /// Waits for the next message; `None` if there is none in time.
    pub fn receive_timeout(&self, timeout: Duration) -> Result<Option<Message>> {
        self.receive_until(|| deadline_in(timeout))
    }

    /// Returns a message that is there already.
    pub fn try_receive(&self) -> Result<Option<Message>> {
        self.receive_timeout(Duration::ZERO)
    }

    /// Returns an iterator that waits for messages. It ends when the subscription or the client is closed.
    pub fn messages(&self) -> SubscriptionMessages<'_> {
        SubscriptionMessages { subscription: self }
    }

    fn receive_until(&self, deadline: impl Fn() -> Deadline) -> Result<Option<Message>> {
        let source = self.source()?;
        self.client.receive_from(source, deadline)
    }

    /// Makes the subscription a stream of its own.
    pub(crate) fn source(&self) -> Result<Source> {
        if !self.own.load(Ordering::Relaxed) {
            let mut session = self.client.shared.lock()?;
            let separator = session.options.separator;
            session.inbox.open_own(self.id, separator);
            if session.inbox.get(self.id).is_some_and(|each| matches!(each.target, Target::Callback(_))) {
                let text = format!("the messages of {} go to its callback, there is none to receive", self.pattern);
                return Err(Error::invalid(text));
            }
            self.own.store(true, Ordering::Relaxed);
        }
        Ok(Source::Own(self.id))
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        if self.own.load(Ordering::Relaxed) {
            let mut session = self.client.shared.peek();
            session.inbox.close_own(self.id);
            session.changes += 1; // somebody may wait at the stream of the client
        }
    }
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscription").field("pattern", &self.pattern).finish_non_exhaustive()
    }
}

/// See [`Subscription::messages`].
#[derive(Debug)]
pub struct SubscriptionMessages<'a> {
    subscription: &'a Subscription,
}

impl Iterator for SubscriptionMessages<'_> {
    type Item = Result<Message>;

    fn next(&mut self) -> Option<Self::Item> {
        unless_closed(self.subscription.receive())
    }
}
