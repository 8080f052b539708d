//! What the daemon sends, and what becomes of it. The head of `session.rs` has the rules.

use std::io::ErrorKind;
use std::mem::take;

use crate::error::Code;
use crate::inbox::{Held, Source};
use crate::notice::NoticeKind;
use crate::protocol::{matches, parse, unpack, Message, Packet, PACK};
use crate::session::{
    Change, Session, BACKLOG_LIMIT, GLANCE_INTERVAL, GLANCE_LIMIT, GLANCE_PACKETS, OVERFLOW_LIMIT, PACKET_LIMIT,
};
use crate::socket::coarse_time;
use crate::{Error, Result};

/// More packets than the socket of a daemon that is gone holds: of one that only takes no more there is no end.
const REST_PACKETS: usize = 1 << 16;

impl Session {
    /// Reads and handles one packet; false if there is none.
    pub(crate) fn read_packet(&mut self) -> Result<bool> {
        loop {
            let Some(socket) = &self.socket else { return Err(self.gone()) };
            match socket.recv(&mut self.buffer) {
                Ok(0) => return Err(self.lose("the daemon went away")),
                Ok(size) => {
                    let buffer = take(&mut self.buffer);
                    let handled = match size <= PACKET_LIMIT {
                        true => self.handle_all(&buffer[..size]),
                        false => {
                            Err(Error::protocol(format!("the daemon sent more than {PACKET_LIMIT} bytes at once")))
                        }
                    };
                    self.buffer = buffer;
                    self.changes += 1;
                    if let Err(error) = &handled {
                        self.lose(error.text());
                    }
                    return handled.map(|()| true);
                }
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => return Ok(false),
                    // A reset comes once; earlier packets can still be read.
                    ErrorKind::Interrupted | ErrorKind::ConnectionReset => {}
                    _ => return Err(self.lose(&error.to_string())),
                },
            }
        }
    }

    /// Reads a packet for who waits for an answer, behind what the daemon had queued.
    pub(crate) fn read_answer(&mut self) -> Result<bool> {
        if self.inbox.bytes() > OVERFLOW_LIMIT {
            let text = format!("{} bytes of messages came before the answer: receive them", self.inbox.bytes());
            return Err(Error::new(Code::Backlog, text));
        }
        self.read_packet()
    }

    /// Reads what a connection still has that takes no more.
    pub(crate) fn read_rest(&mut self) -> Result<()> {
        for _ in 0..REST_PACKETS {
            if !self.read_answer()? {
                break;
            }
        }
        Ok(())
    }

    /// Reads a packet for a program that receives from this stream. What waits in others must not stop it.
    pub(crate) fn read_for(&mut self, source: Source) -> Result<bool> {
        if self.inbox.bytes() > BACKLOG_LIMIT {
            let count = self.inbox.drop_unclaimed(source);
            let text = format!("{count} messages dropped: they waited in a stream that the program does not receive");
            if count > 0 {
                self.notify(NoticeKind::Unclaimed, count, None, text);
            }
        }
        self.read_packet()
    }

    /// For programs that only send: reads now and then what the daemon reports.
    pub(crate) fn glance(&mut self) {
        let now = coarse_time();
        if now < self.glance_at {
            return;
        }
        self.glance_at = now + GLANCE_INTERVAL;
        for _ in 0..GLANCE_PACKETS {
            if self.inbox.bytes() > GLANCE_LIMIT || !matches!(self.read_packet(), Ok(true)) {
                break;
            }
        }
    }

    fn handle_all(&mut self, packet: &[u8]) -> Result<()> {
        if packet.starts_with(PACK) {
            return unpack(packet).try_for_each(|part| self.handle(part?));
        }
        self.handle(packet)
    }

    fn handle(&mut self, packet: &[u8]) -> Result<()> {
        match parse(packet)? {
            Packet::Control(key, value) => self.handle_control(&key, value),
            Packet::Message(message) if self.is_for_exchanges(&message) => {}
            Packet::Message(message) if self.is_unwanted(&self.inbox.subscriptions, &message) => {}
            Packet::Message(mut message) => {
                message.lost = take(&mut self.missing);
                if message.origin.is_some() {
                    message.handle.clone_from(&self.handle);
                }
                self.inbox.put(message, self.options.separator);
            }
        }
        Ok(())
    }

    /// Whether a message came for nothing but a subscribe that was withdrawn.
    pub(crate) fn is_unwanted(&self, subscriptions: &[Held], message: &Message) -> bool {
        if !self.overhears || self.taps() {
            return false;
        }
        let matches = |pattern: &str| matches(pattern, &message.channel, self.options.separator);
        if message.channel.starts_with('!') {
            return subscriptions.is_empty();
        }
        self.withdrawn.iter().any(|each| each.pattern.as_deref().is_some_and(matches))
            && !subscriptions.iter().any(|each| matches(&each.pattern))
    }

    fn handle_control(&mut self, key: &str, value: String) {
        match key {
            "error" => self.handle_error(&value),
            "dropped" => {
                let count: u64 = value.parse().unwrap_or_default();
                let plural = if count == 1 { "message" } else { "messages" };
                self.missing = self.missing.saturating_add(count);
                self.lost = self.lost.saturating_add(count);
                let text = format!("{count} {plural} lost: they came faster than they were read");
                self.notify(NoticeKind::Lost, count, None, text);
            }
            "revoked" => self.notify(NoticeKind::Revoked, 1, None, format!("no longer allowed: {value}")),
            "wanted" => self.handle_wanted(&value),
            "closing" => {
                let text = format!("the daemon closes the connection: {value}");
                self.notify(NoticeKind::Closing, 0, None, text);
            }
            "pong" => self.handle_pong(value.parse().unwrap_or_default()),
            _ => {
                match key {
                    "whoami" | "name" => self.name.clone_from(&value),
                    "watch" => self.forget_news(&value),
                    "pack" => self.pack_limit = value.strip_prefix("on ").map_or(0, |limit| limit.parse().unwrap_or(0)),
                    _ => {} // another answer, or a notice of a newer daemon
                }
                if let Some(ask) = self.ask.as_mut().filter(|ask| ask.key == key) {
                    ask.answer = Some(value);
                }
            }
        }
    }

    fn handle_pong(&mut self, number: u64) {
        self.withdrawn.retain(|each| each.ping == 0 || each.ping > number);
        if let Some(greeting) = self.greeting.as_mut().filter(|greeting| greeting.number == number) {
            greeting.answered = true;
        }
        let Some(ask) = &mut self.ask else { return };
        if ask.number != number {
            (ask.complaint, ask.answer) = (None, None); // they belong to a question that was given up
            return;
        }
        ask.answered = true;
        self.confirmed = self.confirmed.max(ask.published);
        if ask.complaint.is_none() {
            let change = std::mem::replace(&mut ask.change, Change::Nothing);
            self.agree(change);
        }
    }

    /// Remembers what the daemon has agreed to.
    fn agree(&mut self, change: Change) {
        match change {
            Change::Nothing => {}
            Change::Hold(id) => self.inbox.get(id).into_iter().for_each(|each| each.held = true),
            Change::Hear => self.hearing = true,
            Change::Watch(watch) => self.begin_watch(watch),
            Change::Unwatch(pattern) => drop(self.end_watch(&pattern)), // that another call had asked for
            Change::Name(name) => self.options.name = Some(name),
            Change::Heartbeat(value) => self.heartbeat = value,
            Change::Listen(callback) => {
                let old = self.inbox.listen(callback);
                self.garbage.extend(old);
            }
        }
    }

    fn handle_error(&mut self, value: &str) {
        let (code, text) = value.split_once(' ').unwrap_or((value, ""));
        let error = Error::new(Code::of(code), text);
        let rejected = |session: &mut Session, error: &Error| {
            session.notify(NoticeKind::Rejected, 1, Some(error.code().clone()), error.to_string());
        };
        if ["CMSG ", "SUB ", "UNSUB "].iter().any(|word| text.starts_with(word)) {
            if self.greeting.is_some() && self.was_connected && *error.code() != Code::NameTaken {
                rejected(self, &error);
            }
            match (&mut self.greeting, &mut self.ask) {
                (Some(greeting), _) => drop(greeting.complaint.get_or_insert(error)),
                (None, Some(ask)) => drop(ask.complaint.get_or_insert(error)),
                (None, None) => {} // it belongs to a question that was given up
            }
        } else if let Some(error) = self.blame_exchange(error) {
            rejected(self, &error);
            self.rejection.get_or_insert(error);
            self.rejections += 1;
        }
    }

    /// What a barrier found: messages that are not, or may not be, on the bus.
    pub(crate) fn take_rejections(&mut self) -> Result<()> {
        let (doubt, rejections) = (take(&mut self.in_doubt), take(&mut self.rejections));
        match self.rejection.take() {
            Some(error) if rejections > 1 => {
                Err(Error::new(error.code().clone(), format!("{}; {} more rejected", error.text(), rejections - 1)))
            }
            Some(error) => Err(error),
            None if doubt > 0 => {
                let some = if doubt == 1 { "1 message".into() } else { format!("up to {doubt} messages") };
                let text = format!("the daemon went away: {some} may not have been published");
                Err(Error::new(Code::Unconfirmed, text))
            }
            None => Ok(()),
        }
    }
}
