//! Request and reply (clients/PROTOCOL.md, "Request and reply").
//!
//! Rules:
//! 1. A request is a message whose first line is a token; a reply is directed to the asker and begins with the same
//!    line. A token cannot be guessed and belongs to one client: a message that begins like ours is a reply, perhaps a
//!    late one.
//! 2. A request is published once. The daemon says at once how many listen on this host. If nobody does, and no reply
//!    came within `ASK_AFTER`, the client asks the daemons of the other hosts: those with listeners answer, with the
//!    token and a `?`. Nobody listens if several questions bring no answer; a single one could have been lost.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use crate::error::Code;
use crate::inbox::Source;
use crate::operations::Question;
use crate::protocol::{append_msg, cut, Handle, Message};
use crate::session::{is_past, Change, Deadline, Session, BACKLOG_LIMIT};
use crate::{Client, Error, Result};

/// Bytes of the first line of a request.
const TOKEN_LIMIT: usize = 128;

/// The first question waits for `ASK_AFTER`, so that a reply at once costs the segment nothing.
const QUESTIONS: u32 = 3;
const ASK_AFTER: Duration = Duration::from_millis(20);
const ASK_EVERY: Duration = Duration::from_millis(100);

/// A request that waits for replies, as the session knows it.
pub(crate) struct Exchange {
    number: u64,
    token: String,
    channel: String,
    replies: VecDeque<Message>,
    bytes: usize,  // of the replies
    settled: bool, // somebody listens, or nobody can know
    rejection: Option<Error>,
}

/// The same, as its asker knows it. To drop it ends it.
#[derive(Debug)]
pub(crate) struct Inquiry {
    client: Client,
    number: u64,
    channel: String,
    deadline: Deadline,
    due: Instant, // the next question
    left: u32,    // so many questions
}

/// A request to this program: see [`Message::request`]. It can be sent to another thread and be replied to there.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Request {
    /// The channel that it came on.
    pub channel: String,
    /// The src of the asker.
    pub src: String,
    /// The payload without the token.
    pub payload: Vec<u8>,
    pub(crate) head: Vec<u8>, // the token and its LF
    handle: Handle,
}

impl Message {
    /// Returns the message as a request. `None`: it is not a request, or its sender is unknown; the sender is known
    /// only in [`Format::Full`](crate::Format::Full).
    pub fn request(&self) -> Option<Request> {
        let src = &self.origin.as_ref()?.src;
        let (token, payload) = cut(&self.payload, b'\n')?;
        let known = !src.is_empty() && src != "?" && !src.contains('*');
        let sound = known && (1..=TOKEN_LIMIT).contains(&token.len());
        sound.then(|| Request {
            channel: self.channel.clone(),
            src: src.clone(),
            payload: payload.into(),
            head: self.payload[..=token.len()].into(),
            handle: self.handle.clone(),
        })
    }

    /// The request that a handler gets. A last value was replied to when it was new, and a tap shows what was rejected.
    pub(crate) fn fresh_request(&self) -> Option<Request> {
        self.request().filter(|_| self.origin.as_ref().is_some_and(|origin| origin.verdict == "ok"))
    }
}

impl Request {
    /// Returns the payload as text. Bytes that are not UTF-8 are replaced.
    pub fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.payload)
    }

    /// Replies, any number of times. The errors are those of [`Client::publish`]. It blocks while there is no room or
    /// no daemon: a task calls the `reply` of its `AsyncClient`.
    pub fn reply(&self, payload: impl AsRef<[u8]>) -> Result<()> {
        let shared = self.handle.0.upgrade().ok_or_else(Error::closed)?;
        let result = shared.publish_here("!", &self.src, &self.head, payload.as_ref());
        shared.tell();
        result
    }
}

impl Inquiry {
    /// Publishes a request.
    pub(crate) async fn begin(client: Client, channel: &str, payload: &[u8], deadline: Deadline) -> Result<Inquiry> {
        let shared = client.shared.clone();
        let (mut inquiry, token) = {
            let mut session = shared.lock()?;
            let number = session.number();
            let token = format!("{}{number}", session.token);
            let exchange = Exchange {
                number,
                token: token.clone(),
                channel: channel.into(),
                replies: VecDeque::new(),
                bytes: 0,
                settled: false,
                rejection: None,
            };
            session.exchanges.push(exchange);
            (Inquiry { client, number, channel: channel.into(), deadline, due: Instant::now(), left: QUESTIONS }, token)
        };
        let published = inquiry.publish(&format!("{token}\n"), payload).await;
        inquiry.unless_late(published)?;
        inquiry.due = Instant::now() + ASK_AFTER;
        Ok(inquiry)
    }

    /// Hands the request to the daemon once, and finds out whether anybody on this host listens. Messages published
    /// before are confirmed first, so that any rejection is about the request.
    async fn publish(&mut self, head: &str, payload: &[u8]) -> Result<()> {
        let shared = &self.client.shared;
        let (hears, unconfirmed) = {
            let session = shared.lock()?;
            (session.hearing || session.inbox.listens(), session.published > session.confirmed)
        };
        if !hears {
            shared.lock()?.overhears = true; // also if it fails
            shared.control("listen", "", Change::Hear, self.deadline).await?;
        } else if unconfirmed {
            shared.ask(Question::new(None, &AtomicU64::new(0)), self.deadline).await?;
        }
        let mut packet = Vec::new();
        append_msg(&mut packet, "", &self.channel, head.as_bytes(), payload)?;
        shared.send_until(&packet, 1, self.deadline).await?;
        let listeners = shared.control("listeners", &self.channel, Change::Nothing, self.deadline).await;
        let mut session = shared.lock()?;
        let Some(exchange) = session.exchange(self.number) else { return Err(Error::closed()) };
        if let Some(error) = exchange.rejection.take() {
            return Err(error);
        }
        exchange.settled |= match listeners {
            Err(error) if *error.code() == Code::UnknownKey => true, // an older daemon
            listeners => listeners? != "0",
        };
        Ok(())
    }

    /// The next reply; `None` at the deadline.
    pub(crate) async fn next(&mut self) -> Result<Option<Message>> {
        loop {
            let wait = {
                let mut session = self.client.shared.lock()?;
                let Some(exchange) = session.exchange(self.number) else { return Err(Error::closed()) };
                if let Some(reply) = exchange.replies.pop_front() {
                    exchange.bytes -= reply.size();
                    return Ok(Some(reply));
                }
                let settled = exchange.settled;
                if is_past(self.deadline) {
                    return Ok(None);
                }
                session.check_backlog()?;
                let due = if settled { None } else { Some(self.due) };
                match session.read_on(Source::Client, due.into_iter().chain(self.deadline).min())? {
                    Some(_) if due.is_some_and(|due| Instant::now() >= due) => None,
                    Some(wait) => Some(wait),
                    None => continue,
                }
            };
            match wait {
                Some(wait) => self.client.shared.rest(wait).await,
                None => {
                    let asked = self.ask_others().await;
                    self.unless_late(asked)?;
                }
            }
        }
    }

    /// Makes the daemon ask those of the other hosts. It answers `<n>`, `<n> asked` or `<n> busy`.
    async fn ask_others(&mut self) -> Result<()> {
        if self.left == 0 {
            return Err(Error::new(Code::Nobody, format!("nobody listens to {}", self.channel)));
        }
        (self.due, self.left) = (Instant::now() + ASK_EVERY, self.left - 1);
        let shared = &self.client.shared;
        let token = shared.lock()?.exchange(self.number).map(|exchange| exchange.token.clone()).unwrap_or_default();
        let value = format!("{} {token}?", self.channel);
        let answer = shared.control("listeners", &value, Change::Nothing, self.deadline).await?;
        let (listeners, outcome) = answer.split_once(' ').unwrap_or((&answer, ""));
        let mut session = shared.lock()?;
        let Some(exchange) = session.exchange(self.number) else { return Err(Error::closed()) };
        exchange.settled |= listeners != "0" || outcome == "busy";
        if exchange.settled || outcome == "asked" {
            return Ok(());
        }
        let text = format!("nobody on this host listens to {}, a local channel", self.channel);
        Err(Error::new(Code::Nobody, text))
    }

    /// A time that is over while the daemon is asked ends the replies, without an error.
    fn unless_late(&self, result: Result<()>) -> Result<()> {
        match result {
            Err(error) if *error.code() == Code::Timeout && is_past(self.deadline) => Ok(()),
            result => result,
        }
    }

    /// That the time is over.
    pub(crate) fn timeout(&self) -> Error {
        Error::timeout(format!("no reply on {} in time", self.channel))
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }
}

impl Drop for Inquiry {
    fn drop(&mut self) {
        let number = self.number;
        self.client.shared.peek().exchanges.retain(|exchange| exchange.number != number);
    }
}

impl Session {
    fn exchange(&mut self, number: u64) -> Option<&mut Exchange> {
        self.exchanges.iter_mut().find(|exchange| exchange.number == number)
    }

    /// Keeps a reply to a request of this client. True: the program does not get the message, which is a reply, in time
    /// or late, or came only because the client listens for replies. A request to all comes back to the asker, and is
    /// not a reply.
    pub(crate) fn is_for_exchanges(&mut self, message: &Message) -> bool {
        if !message.channel.starts_with('!') || message.is_rejected() {
            return false;
        }
        let unheard = !self.taps() && self.inbox.subscriptions.is_empty();
        let (line, reply) = cut(&message.payload, b'\n').unwrap_or((&message.payload, b""));
        if !line.starts_with(self.token.as_bytes()) {
            return self.hearing && unheard;
        }
        let token = line.strip_suffix(b"?").unwrap_or(line);
        if let Some(exchange) = self.exchanges.iter_mut().find(|exchange| exchange.token.as_bytes() == token) {
            if exchange.channel == message.channel {
                return unheard;
            }
            exchange.settled = true;
            if token.len() == line.len() && exchange.bytes < BACKLOG_LIMIT {
                let reply = Message { payload: reply.to_vec(), ..message.clone() };
                exchange.bytes += reply.size();
                exchange.replies.push_back(reply);
            }
        }
        true
    }

    /// Gives an error to the request that it is about; returns any other error.
    pub(crate) fn blame_exchange(&mut self, error: Error) -> Option<Error> {
        let about = |exchange: &&mut Exchange| {
            !exchange.settled
                && exchange.rejection.is_none()
                && error.text().starts_with(&format!("MSG {}:", exchange.channel))
        };
        let found = self.exchanges.iter_mut().find(about);
        match found {
            Some(exchange) => {
                exchange.rejection = Some(error);
                None
            }
            None => Some(error),
        }
    }
}
