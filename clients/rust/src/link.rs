//! The connection: connecting, sending, asking, reading and waiting. The head of `client.rs` has the rules.

use std::io::ErrorKind;
use std::mem::take;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

use crate::client::{Asking, Withdrawal};
use crate::protocol::{build_control, matches, parse, unpack, Message, Packet, PACK};
use crate::socket::{generation, Socket};
use crate::{Client, Error, Notice, NoticeKind, Options, Result};

/// When a wait ends; `None`: never.
pub(crate) type Deadline = Option<Instant>;

const SERVICE_SOCKET: &str = "/run/bccnd/bus.sock";

/// Bytes; the longest packet of the daemon has 71 kB.
pub(crate) const PACKET_ROOM: usize = 128 << 10;
/// With so many bytes of messages waiting, calls that ask the daemon fail.
const BACKLOG_LIMIT: usize = 64 << 20;

/// A program that only sends still reads what the daemon reports: how often, until how many bytes wait, and how many
/// packets at a time.
const GLANCE_INTERVAL: Duration = Duration::from_millis(100);
const GLANCE_LIMIT: usize = 1 << 20;
const GLANCE_PACKETS: usize = 1024;

/// A failed connect(2) to a local socket costs microseconds, so the first pause is short.
pub(crate) const BACKOFF_FIRST: Duration = Duration::from_millis(20);
const BACKOFF_LIMIT: Duration = Duration::from_secs(1);

/// poll(2) does not wait until the kernel has memory again.
const MEMORY_PAUSE: Duration = Duration::from_millis(1);

pub(crate) fn deadline_in(time: Duration) -> Deadline {
    Instant::now().checked_add(time)
}

pub(crate) fn is_past(deadline: Deadline) -> bool {
    deadline.is_some_and(|at| Instant::now() >= at)
}

fn rejected(code: &str, text: impl Into<String>) -> Error {
    Error::Rejected { code: code.into(), text: text.into() }
}

impl Client {
    pub(crate) fn connect(address: Option<&str>, options: Options) -> Result<Client> {
        let deadline = deadline_in(options.wait);
        let mut client = Client::unconnected(address.map(String::from), options)?;
        client.call(|client| client.ensure(deadline))?;
        Ok(client)
    }

    /// Runs a function of the client, and does what comes before and after each of them.
    pub(crate) fn call<T>(&mut self, function: impl FnOnce(&mut Client) -> Result<T>) -> Result<T> {
        if self.generation != generation() {
            self.become_child()?;
        }
        let result = function(self);
        // For poll loops: a message waits here, or it will be time to connect again.
        self.readiness.ring(match self.socket {
            _ if !self.backlog.is_empty() => Some(self.opened),
            None => Some(self.retry_at),
            Some(_) => None,
        });
        result
    }

    /// Makes the client of a child of fork a source of its own, without the messages of its parent
    /// (clients/PROTOCOL.md, "Names and numbers").
    fn become_child(&mut self) -> Result<()> {
        let fresh = Client::unconnected(self.address.clone(), Options::default())?;
        let mut child = Client {
            options: take(&mut self.options),
            heartbeat: take(&mut self.heartbeat),
            subscriptions: take(&mut self.subscriptions),
            listening: self.listening,
            hearing: self.hearing,
            ..fresh
        };
        if !self.name.is_empty() {
            child.options.name = Some(format!("{}/{}", self.name, std::process::id()));
        }
        *self = child; // closes only copies of the parent's descriptors
        Ok(())
    }

    pub(crate) fn usual_deadline(&self) -> Deadline {
        deadline_in(self.options.timeout)
    }

    fn notify(&mut self, kind: NoticeKind, count: u64, text: impl Into<String>) {
        (self.options.on_notice)(&Notice { kind, count, text: text.into() });
    }

    // --- connecting ---

    /// Connects if there is no connection; tries until the deadline, and a busy daemon for the usual time.
    pub(crate) fn ensure(&mut self, mut deadline: Deadline) -> Result<()> {
        if self.socket.is_some() {
            return Ok(());
        }
        let patience = self.usual_deadline();
        loop {
            if Instant::now() >= self.retry_at {
                match self.attempt() {
                    Ok(()) => break,
                    Err(Error::Unavailable(why)) => self.unreachable = why,
                    Err(error) => return Err(error),
                }
                self.retry_at = Instant::now() + self.backoff.mul_f64(0.5 + chance());
                self.backoff = BACKOFF_LIMIT.min(self.backoff * 2);
            }
            if self.busy {
                deadline = deadline.zip(patience).map(|(one, other)| one.max(other));
            }
            if deadline.is_some_and(|at| self.retry_at > at) {
                return Err(Error::Unavailable(self.unreachable.clone()));
            }
            sleep(self.retry_at.saturating_duration_since(Instant::now()));
        }
        self.backoff = BACKOFF_FIRST;
        if std::mem::replace(&mut self.was_connected, true) {
            self.notify(NoticeKind::Reconnected, 0, "connected to the daemon again");
        }
        Ok(())
    }

    /// Connects and greets once.
    fn attempt(&mut self) -> Result<()> {
        let path = socket_path(self.address.as_deref());
        let connected = Socket::connect(&path);
        self.busy = connected.as_ref().is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
        let socket = connected.map_err(|error| match error.kind() {
            ErrorKind::PermissionDenied if !self.was_connected => {
                rejected("refused", format!("no permission to connect to {path}"))
            }
            ErrorKind::InvalidInput => Error::Invalid(format!("{path:?}: {error}")),
            ErrorKind::WouldBlock => {
                Error::Unavailable(format!("the daemon at {path} is busy: more programs connect than it accepts"))
            }
            _ => Error::Unavailable(format!("no daemon at {path}: {error}")),
        })?;
        self.readiness.watch(&socket).map_err(|error| Error::Unavailable(format!("no descriptor: {error}")))?;
        self.socket = Some(socket);
        self.greeting = true;
        let greeted = self.greet();
        self.greeting = false;
        if greeted.is_err() {
            self.let_go();
        }
        greeted
    }

    /// Sends the settings and subscriptions to a new connection.
    fn greet(&mut self) -> Result<()> {
        let deadline = self.usual_deadline();
        self.complaint = None;
        let mut said = self.greeting().iter().try_for_each(|packet| self.send_here(packet, deadline));
        said = said.and_then(|()| self.await_pong(deadline));
        match (said, self.complaint.take()) {
            (Err(Error::Timeout(text)), _) => Err(Error::Unavailable(text)),
            (Err(error), _) => Err(error),
            (Ok(()), Some(error)) if !self.was_connected => Err(error),
            // Our old connection may hold the name a little longer.
            (Ok(()), Some(Error::Rejected { code, text })) if code == "name-taken" => Err(Error::Unavailable(text)),
            _ => Ok(()), // a notice has reported any other rejection
        }
    }

    fn greeting(&self) -> Vec<Vec<u8>> {
        let options = &self.options;
        let separator = options.separator.to_string();
        let wishes = [
            ("name", options.name.as_deref()),
            ("separator", Some(separator.as_str()).filter(|_| options.separator != '/')),
            ("format", options.full.then_some("full")),
            ("pack", options.pack.then_some("on")),
            ("echo/off", (!options.echo).then_some("")),
            ("queue", options.queue.as_deref()),
            ("tap", options.tap.then_some("on")),
            ("heartbeat", self.heartbeat.as_deref()),
            ("listen", (self.listening || self.hearing).then_some("")),
            ("whoami", Some("")),
        ];
        let requests = wishes.iter().filter_map(|(key, value)| value.map(|value| format!("CMSG {key}\0{value}")));
        let subscriptions = self.subscriptions.iter().map(|pattern| format!("SUB {pattern}"));
        requests.chain(subscriptions).map(String::into_bytes).collect()
    }

    fn let_go(&mut self) {
        if let Some(socket) = self.socket.take() {
            self.readiness.forget(&socket);
        }
        self.pack_limit = 0;
        self.asking = Asking::Unsaid;
        self.withdrawn.clear(); // a new connection knows nothing of them
        self.overhears = false;
    }

    /// Ends a connection that has been read to its end.
    fn lose(&mut self, reason: &str) -> Error {
        self.let_go();
        let doubt = self.published - self.confirmed;
        self.confirmed = self.published;
        self.in_doubt += doubt;
        self.unreachable = reason.into();
        if !self.greeting {
            self.notify(NoticeKind::Disconnected, doubt, reason);
        }
        Error::Unavailable(reason.into())
    }

    fn gone(&self) -> Error {
        Error::Unavailable(self.unreachable.clone())
    }

    // --- sending ---

    /// Sends a packet with so many messages in it, over reconnections and a full socket.
    pub(crate) fn transmit(&mut self, packet: &[u8], messages: u64, deadline: Deadline) -> Result<()> {
        loop {
            self.ensure(deadline)?;
            match self.send_here(packet, deadline) {
                Err(Error::Unavailable(_)) if !is_past(deadline) => {}
                result => {
                    self.published += if result.is_ok() { messages } else { 0 };
                    return result;
                }
            }
        }
    }

    /// Sends a packet on this connection.
    fn send_here(&mut self, packet: &[u8], deadline: Deadline) -> Result<()> {
        loop {
            let socket = self.socket.as_ref().ok_or_else(|| self.gone())?;
            let Err(error) = socket.send(packet) else { return Ok(()) };
            match error.raw_os_error() {
                Some(libc::EAGAIN) => {
                    // Keep reading: the daemon may be waiting for us to read.
                    let reading = self.backlog_size < BACKLOG_LIMIT;
                    if !socket.wait(reading, true, deadline) {
                        return Err(Error::Timeout("not sent: the daemon takes no more".into()));
                    }
                    if reading {
                        self.read_ahead()?;
                    }
                }
                Some(libc::ENOBUFS | libc::ENOMEM) if is_past(deadline) => {
                    return Err(Error::Timeout("not sent: the kernel has no memory for it".into()));
                }
                Some(libc::ENOBUFS | libc::ENOMEM) => sleep(MEMORY_PAUSE),
                Some(libc::EMSGSIZE) => {
                    return Err(rejected("too-large", format!("packet: {} bytes, too many to send", packet.len())));
                }
                Some(libc::EINTR) => {}
                _ => {
                    while self.read_ahead()? {} // the daemon is gone: read what it had sent
                    return Err(self.lose("the daemon went away"));
                }
            }
        }
    }

    // --- asking ---

    /// Sends a packet (`None`: only a ping), and waits until the daemon has processed it. If the connection breaks, the
    /// packet is sent `again` on the next one; without `again` it is part of the greeting of a new connection.
    pub(crate) fn ask(&mut self, packet: Option<&[u8]>, again: bool, deadline: Deadline) -> Result<()> {
        let mut greeted = false;
        self.asking = Asking::Unsaid;
        loop {
            greeted |= self.socket.is_none();
            self.ensure(deadline)?;
            let packet = packet.filter(|_| again || !greeted);
            match self.ask_here(packet, deadline) {
                Err(Error::Unavailable(_)) if !is_past(deadline) => {}
                result => return result.and(self.complaint.take().map_or(Ok(()), Err)),
            }
            greeted = true;
        }
    }

    /// Asks on this connection. Without a packet its greeting has said what there is to say.
    fn ask_here(&mut self, packet: Option<&[u8]>, deadline: Deadline) -> Result<()> {
        self.asking = if packet.is_some() { Asking::Unsaid } else { Asking::Said };
        self.check_backlog()?;
        self.take_back(deadline)?;
        (self.complaint, self.answer) = (None, None);
        if let Some(packet) = packet {
            self.send_here(packet, deadline)?;
        }
        self.asking = Asking::Said;
        self.await_pong(deadline)?;
        self.asking = Asking::Answered;
        Ok(())
    }

    /// Has an UNSUB sent, without waiting for it. The messages that came for it, behind so many that wait, reach nobody.
    pub(crate) fn withdraw(&mut self, pattern: &str, waiting: usize) {
        self.withdrawn.push(Withdrawal { pattern: pattern.into(), said: false, ping: 0 });
        self.overhears = true;
        let mut lost = 0;
        for mut message in self.backlog.split_off(waiting) {
            lost += take(&mut message.lost);
            if self.is_unwanted(&message) {
                self.backlog_size -= message.size();
            } else {
                message.lost = take(&mut lost);
                self.backlog.push_back(message);
            }
        }
        self.lost += lost;
        let _ = self.take_back(Some(Instant::now())); // what finds no room goes before the next request
    }

    /// Sends what is left to send of withdrawals. Sending may read, and so settle others.
    fn take_back(&mut self, deadline: Deadline) -> Result<()> {
        while let Some(Withdrawal { pattern, said, .. }) = self.owed() {
            if !*said {
                let packet = format!("UNSUB {pattern}");
                self.send_here(packet.as_bytes(), deadline)?;
                self.owed().into_iter().for_each(|each| each.said = true);
            }
            let number = self.asked + 1;
            self.send_here(format!("CMSG ping\0{number}").as_bytes(), deadline)?;
            self.owed().into_iter().for_each(|each| each.ping = number);
            self.asked = number;
        }
        Ok(())
    }

    /// The first withdrawal that is not sent to its end.
    fn owed(&mut self) -> Option<&mut Withdrawal> {
        self.withdrawn.iter_mut().find(|each| each.ping == 0)
    }

    /// Whether a message came for nothing but a subscribe that was withdrawn.
    fn is_unwanted(&self, message: &Message) -> bool {
        let matches = |pattern: &str| matches(pattern, &message.channel, self.options.separator);
        if !self.overhears || self.options.tap {
            return false;
        }
        if message.channel.starts_with('!') {
            return !self.listening && self.subscriptions.is_empty();
        }
        self.withdrawn.iter().any(|each| matches(&each.pattern))
            && !self.subscriptions.iter().any(|pattern| matches(pattern))
    }

    /// Sends a control request and returns its answer.
    pub(crate) fn ask_control(&mut self, key: &str, value: &str, deadline: Deadline) -> Result<String> {
        let packet = build_control(key, value)?;
        if key == "ping" {
            return Err(Error::Invalid("control key \"ping\": call barrier".into()));
        }
        self.awaited = key.into();
        let result = self.ask(Some(&packet), true, deadline);
        self.awaited.clear();
        result.map(|()| self.answer.take().unwrap_or_default())
    }

    /// Waits until the daemon has processed all that was sent on this connection.
    fn await_pong(&mut self, deadline: Deadline) -> Result<()> {
        self.asked += 1;
        self.published_when_asked = self.published;
        self.send_here(format!("CMSG ping\0{}", self.asked).as_bytes(), deadline)?;
        while self.answered != self.asked {
            if !self.read_ahead()? && !self.wait_readable(deadline) {
                return Err(Error::Timeout("the daemon does not answer".into()));
            }
        }
        Ok(())
    }

    pub(crate) fn check_backlog(&self) -> Result<()> {
        match self.backlog_size {
            size if size > BACKLOG_LIMIT => Err(Error::Backlog(size)),
            _ => Ok(()),
        }
    }

    // --- reading ---

    pub(crate) fn recv_until(&mut self, deadline: Deadline) -> Result<Option<Message>> {
        self.call(|client| loop {
            if let Some(message) = client.backlog.pop_front() {
                client.backlog_size -= message.size();
                return Ok(Some(message));
            }
            if !client.step(deadline)? {
                return Ok(None);
            }
        })
    }

    /// Reads a packet or waits for one, and reconnects when that is due. False at the deadline.
    pub(crate) fn step(&mut self, deadline: Deadline) -> Result<bool> {
        let waiting = self.backlog.len();
        if !self.withdrawn.is_empty() && self.take_back(Some(Instant::now())).is_err() && self.backlog.len() > waiting {
            return Ok(true);
        }
        match self.ensure(Some(Instant::now())).and_then(|()| self.read_ahead()) {
            Ok(false) => Ok(self.wait_readable(deadline)),
            Err(Error::Unavailable(_)) if is_past(deadline) => Ok(false),
            Err(Error::Unavailable(_)) => {
                let until = deadline.map_or(self.retry_at, |at| at.min(self.retry_at));
                sleep(until.saturating_duration_since(Instant::now()));
                Ok(true)
            }
            result => result,
        }
    }

    fn wait_readable(&self, deadline: Deadline) -> bool {
        self.socket.as_ref().map_or(true, |socket| socket.wait(true, false, deadline))
    }

    /// For programs that only send: reads now and then what the daemon reports.
    pub(crate) fn glance(&mut self) {
        let now = Instant::now();
        if now < self.glance_at {
            return;
        }
        self.glance_at = now + GLANCE_INTERVAL;
        for _ in 0..GLANCE_PACKETS {
            if self.backlog_size > GLANCE_LIMIT || !matches!(self.read_ahead(), Ok(true)) {
                break;
            }
        }
    }

    /// Reads and handles one packet; false if there is none.
    fn read_ahead(&mut self) -> Result<bool> {
        loop {
            let Some(socket) = &self.socket else { return Err(self.gone()) };
            match socket.recv(&mut self.buffer) {
                Ok(0) => return Err(self.lose("the daemon went away")),
                Ok(size) => {
                    let buffer = take(&mut self.buffer);
                    let handled = self.handle_all(&buffer[..size]);
                    self.buffer = buffer;
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

    fn handle_all(&mut self, packet: &[u8]) -> Result<()> {
        if packet.starts_with(PACK) {
            return unpack(packet)?.into_iter().try_for_each(|part| self.handle(part));
        }
        self.handle(packet)
    }

    fn handle(&mut self, packet: &[u8]) -> Result<()> {
        match parse(packet)? {
            Packet::Control(key, value) => self.handle_control(&key, value),
            Packet::Message(message) if self.is_for_exchanges(&message) || self.is_unwanted(&message) => {}
            Packet::Message(mut message) => {
                message.lost = take(&mut self.lost);
                self.backlog_size += message.size();
                self.backlog.push_back(message);
            }
        }
        Ok(())
    }

    fn handle_control(&mut self, key: &str, value: String) {
        match key {
            "error" => self.handle_error(&value),
            "dropped" => {
                let count: u64 = value.parse().unwrap_or_default();
                let plural = if count == 1 { "message" } else { "messages" };
                self.lost = self.lost.saturating_add(count);
                let text = format!("{count} {plural} lost: they came faster than they were read");
                self.notify(NoticeKind::Lost, count, text);
            }
            "revoked" => self.notify(NoticeKind::Revoked, 1, format!("no longer allowed: {value}")),
            "closing" => self.notify(NoticeKind::Closing, 0, format!("the daemon closes the connection: {value}")),
            "pong" => {
                self.answered = value.parse().unwrap_or_default();
                let answered = self.answered;
                self.withdrawn.retain(|each| each.ping == 0 || each.ping > answered);
                if self.answered == self.asked {
                    self.confirmed = self.published_when_asked;
                } else {
                    (self.complaint, self.answer) = (None, None); // they belong to a request that was given up
                }
            }
            _ => {
                match key {
                    "whoami" | "name" => self.name.clone_from(&value),
                    "pack" => self.pack_limit = value.strip_prefix("on ").map_or(0, |limit| limit.parse().unwrap_or(0)),
                    _ => {} // another answer, or a notice of a newer daemon
                }
                if key == self.awaited {
                    self.answer = Some(value);
                }
            }
        }
    }

    fn handle_error(&mut self, value: &str) {
        let (code, text) = value.split_once(' ').unwrap_or((value, ""));
        let error = rejected(code, text);
        let asked = ["CMSG ", "SUB ", "UNSUB "].iter().any(|word| text.starts_with(word));
        if asked && self.greeting && self.was_connected && code != "name-taken" {
            self.notify(NoticeKind::Rejected, 1, error.to_string());
        }
        if asked {
            self.complaint.get_or_insert(error);
        } else if let Some(error) = self.blame_exchange(error) {
            self.notify(NoticeKind::Rejected, 1, error.to_string());
            self.rejection.get_or_insert(error);
            self.rejections += 1;
        }
    }
}

/// The address, or $BCCN_SOCKET, or the first that exists of the service's socket and the user's own. If neither
/// exists, that of the service, so that the error names it.
fn socket_path(address: Option<&str>) -> String {
    let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    if let Some(path) = address.map(String::from).or_else(|| variable("BCCN_SOCKET")) {
        return path;
    }
    let own = variable("XDG_RUNTIME_DIR").map(|folder| format!("{folder}/bccnd/bus.sock"));
    match own {
        Some(own) if !Path::new(SERVICE_SOCKET).exists() && Path::new(&own).exists() => own,
        _ => SERVICE_SOCKET.into(),
    }
}

/// A number from 0 to 1. The last digits of the clock are random enough to spread clients.
fn chance() -> f64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    f64::from(now.subsec_nanos() / 64 % 1024) / 1024.0
}
