//! Request and reply (clients/PROTOCOL.md, "Request and reply").
//!
//! Rules:
//! 1. A request is a message whose first line is a token; an answer is directed to the asker and begins with the same
//!    line. A token cannot be guessed and belongs to one client: a message that begins like ours is an answer, perhaps
//!    a late one.
//! 2. A request is published once. The daemon says at once how many listen on this host. If nobody does, and no answer
//!    came within `ASK_AFTER`, the client asks the daemons of the other hosts: those with listeners answer, with the
//!    token and a `?`. Nobody listens if several questions bring no answer; a single one could have been lost.

use std::time::{Duration, Instant};

use crate::link::{deadline_in, is_past, Deadline};
use crate::protocol::{cut, Message};
use crate::{Client, Error, Result};

/// Bytes of the first line of a request.
const TOKEN_LIMIT: usize = 128;

/// The first question waits for `ASK_AFTER`, so that an answer at once costs the segment nothing.
const QUESTIONS: u32 = 3;
const ASK_AFTER: Duration = Duration::from_millis(20);
const ASK_EVERY: Duration = Duration::from_millis(100);

/// More answers to one request are a flood, and are dropped.
const ANSWERS_LIMIT: usize = 65536;

/// A request that waits for answers.
pub(crate) struct Exchange {
    token: String,
    channel: String,
    answers: Vec<Message>,
    settled: bool, // somebody listens, or nobody can know
    rejection: Option<Error>,
}

/// A request to this program: see [`Message::request`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request<'a> {
    /// The src of the asker.
    pub src: &'a str,
    /// The payload without the token.
    pub question: &'a [u8],
    head: &'a [u8], // the token and its LF
}

impl Message {
    /// Returns the message as a request. `None`: it is not a request, or its sender is unknown; the sender is known
    /// only with [`Options::full`](crate::Options::full).
    pub fn request(&self) -> Option<Request<'_>> {
        let src = self.origin.as_ref()?.src.as_str();
        let (token, question) = cut(&self.payload, b'\n')?;
        let known = !src.is_empty() && src != "?" && !src.contains('*');
        let head = &self.payload[..=token.len()];
        (known && (1..=TOKEN_LIMIT).contains(&token.len())).then_some(Request { src, question, head })
    }
}

impl Client {
    /// Asks on `channel` and returns the first answer. The errors are [`Error::Timeout`], and within a third of a
    /// second [`Error::Nobody`], if no program of this host or of another with a daemon would get the request. The call
    /// needs no subscription.
    pub fn request(&mut self, channel: &str, question: impl AsRef<[u8]>, timeout: Duration) -> Result<Message> {
        self.request_many(channel, question, 1, timeout).map(|mut answers| answers.remove(0))
    }

    /// Asks like [`Client::request`] and returns the first `most` answers that come in time. Fewer are an error only if
    /// there are none.
    pub fn request_many(
        &mut self,
        channel: &str,
        question: impl AsRef<[u8]>,
        most: usize,
        timeout: Duration,
    ) -> Result<Vec<Message>> {
        let deadline = deadline_in(timeout);
        self.call(|client| {
            client.requests += 1;
            client.exchange = Some(Exchange {
                token: format!("{}{}", client.token, client.requests),
                channel: channel.into(),
                answers: Vec::new(),
                settled: false,
                rejection: None,
            });
            let result = client.exchange(channel, question.as_ref(), most.clamp(1, ANSWERS_LIMIT), deadline);
            let exchange = client.exchange.take().expect("only this function takes it");
            result.map(|()| exchange.answers)
        })
    }

    /// Answers a request, any number of times. The errors are those of [`Client::publish`].
    pub fn reply(&mut self, request: &Request<'_>, answer: impl AsRef<[u8]>) -> Result<()> {
        self.publish_parts("!", request.src, request.head, answer.as_ref())
    }

    /// Publishes the request of `self.exchange`, and gathers answers there.
    fn exchange(&mut self, channel: &str, question: &[u8], most: usize, deadline: Deadline) -> Result<()> {
        self.publish_request(channel, question, deadline)?;
        let (mut due, mut left) = (Instant::now() + ASK_AFTER, QUESTIONS);
        loop {
            let (count, settled) = self.exchange.as_ref().map_or((0, true), |now| (now.answers.len(), now.settled));
            if count >= most || (count > 0 && is_past(deadline)) {
                return Ok(());
            }
            if is_past(deadline) {
                return Err(Error::Timeout(format!("no answer on {channel} in time")));
            }
            self.check_backlog()?;
            let stage = if settled { deadline } else { Some(deadline.map_or(due, |at| at.min(due))) };
            if self.step(stage)? || settled || Instant::now() < due {
                continue;
            }
            if left == 0 {
                return Err(Error::Nobody(format!("nobody listens to {channel}")));
            }
            (due, left) = (Instant::now() + ASK_EVERY, left - 1);
            self.ask_others(channel, deadline)?;
        }
    }

    /// Hands the request to the daemon once, and finds out whether anybody on this host listens. Messages published
    /// before are confirmed first, so that any rejection is about the request.
    fn publish_request(&mut self, channel: &str, question: &[u8], deadline: Deadline) -> Result<()> {
        if !self.listening && !self.hearing {
            self.ask_control("listen", "", deadline)?;
            self.hearing = true;
        } else if self.published > self.confirmed {
            self.ask(None, true, deadline)?;
        }
        let head = self.exchange.as_ref().map(|exchange| format!("{}\n", exchange.token)).unwrap_or_default();
        self.publish_until("", channel, head.as_bytes(), question, deadline)?;
        let listeners = self.ask_control("listeners", channel, deadline);
        let Some(exchange) = &mut self.exchange else { return Ok(()) };
        if let Some(error) = exchange.rejection.take() {
            return Err(error);
        }
        exchange.settled |= match listeners {
            Err(Error::Rejected { code, .. }) if code == "unknown-key" => true, // an older daemon
            listeners => listeners? != "0",
        };
        Ok(())
    }

    /// Makes the daemon ask those of the other hosts. It answers `<n>`, `<n> asked` or `<n> busy`.
    fn ask_others(&mut self, channel: &str, deadline: Deadline) -> Result<()> {
        let token = self.exchange.as_ref().map(|exchange| exchange.token.clone()).unwrap_or_default();
        let answer = self.ask_control("listeners", &format!("{channel} {token}?"), deadline)?;
        let (listeners, outcome) = answer.split_once(' ').unwrap_or((&answer, ""));
        let Some(exchange) = &mut self.exchange else { return Ok(()) };
        exchange.settled |= listeners != "0" || outcome == "busy";
        if exchange.settled || outcome == "asked" {
            return Ok(());
        }
        Err(Error::Nobody(format!("nobody on this host listens to {channel}, a local channel")))
    }

    /// Keeps an answer to a request of this client. True: the program does not get the message, which is an answer, in
    /// time or late, or came only because the client listens for answers. A request to all comes back to the asker, and
    /// is not an answer.
    pub(crate) fn is_for_exchanges(&mut self, message: &Message) -> bool {
        if !message.channel.starts_with('!') {
            return false;
        }
        let (line, answer) = cut(&message.payload, b'\n').unwrap_or((&message.payload, b""));
        if !line.starts_with(self.token.as_bytes()) {
            return self.hearing && !self.listening && self.subscriptions.is_empty();
        }
        let token = line.strip_suffix(b"?").unwrap_or(line);
        match &mut self.exchange {
            Some(exchange) if exchange.token.as_bytes() == token => {
                if exchange.channel == message.channel {
                    return !self.listening && self.subscriptions.is_empty();
                }
                exchange.settled = true;
                if token.len() == line.len() && exchange.answers.len() < ANSWERS_LIMIT {
                    exchange.answers.push(Message { payload: answer.to_vec(), ..message.clone() });
                }
            }
            _ => {}
        }
        true
    }

    /// Gives an error to the request that it is about; returns any other error.
    pub(crate) fn blame_exchange(&mut self, error: Error) -> Option<Error> {
        match (&mut self.exchange, &error) {
            (Some(exchange), Error::Rejected { text, .. })
                if text.starts_with(&format!("MSG {}:", exchange.channel)) =>
            {
                exchange.rejection.get_or_insert(error);
                None
            }
            _ => Some(error),
        }
    }
}
