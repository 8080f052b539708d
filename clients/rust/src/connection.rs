//! The connection of a session: connecting, greeting, losing it, sending. The head of `session.rs` has the rules.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use crate::error::Code;
use crate::notice::NoticeKind;
use crate::session::{deadline_in, is_past, Deadline, Greeting, Sent, Session, Wait, BACKOFF_FIRST};
use crate::socket::Socket;
use crate::{Error, Format, Result, Separator, Tap};

const SERVICE_SOCKET: &str = "/run/bccnd/bus.sock";

const BACKOFF_LIMIT: Duration = Duration::from_secs(1);

impl Session {
    /// Goes on connecting, if that is due. True: there is a connection.
    pub(crate) fn connect(&mut self) -> Result<bool> {
        if self.greeting.is_some() {
            return self.greet();
        }
        if self.socket.is_some() {
            return Ok(true);
        }
        if self.closed {
            return Err(Error::closed());
        }
        if self.was_connected && !self.options.reconnect {
            return Err(self.gone());
        }
        if Instant::now() < self.retry_at {
            return Ok(false);
        }
        match self.attempt() {
            Ok(()) => self.greet(),
            Err(error) if *error.code() == Code::Unavailable => self.put_off(error.text()),
            Err(error) => Err(error),
        }
    }

    /// What to wait for without a connection. The error is that there will be none in time.
    pub(crate) fn await_connection(&self, deadline: Deadline) -> Result<Wait> {
        match &self.greeting {
            Some(_) if is_past(deadline) => Err(Error::unavailable("the daemon does not answer")),
            Some(greeting) => {
                let until = greeting.until.into_iter().chain(deadline).min();
                Ok(self.wait(true, !greeting.packets.is_empty(), until))
            }
            None if deadline.is_some_and(|at| self.retry_at > at) => Err(self.gone()),
            None => Ok(self.wait(false, false, Some(self.retry_at))),
        }
    }

    fn attempt(&mut self) -> Result<()> {
        let path = socket_path(self.options.path.as_deref());
        let connected = Socket::connect(path.as_bytes());
        let path = path.to_string_lossy();
        self.busy = connected.as_ref().is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
        let socket = connected.map_err(|error| match error.kind() {
            ErrorKind::PermissionDenied if !self.was_connected => {
                Error::new(Code::Refused, format!("no permission to connect to {path}"))
            }
            ErrorKind::InvalidInput => Error::invalid(format!("{path:?}: {error}")),
            ErrorKind::WouldBlock => {
                Error::unavailable(format!("the daemon at {path} is busy: more programs connect than it accepts"))
            }
            _ => Error::unavailable(format!("no daemon at {path}: {error}")),
        })?;
        self.readiness.watch(&socket).map_err(|error| Error::unavailable(format!("no descriptor: {error}")))?;
        self.socket = Some(Arc::new(socket));
        self.connection += 1;
        let number = self.number();
        let mut packets = self.wishes();
        packets.push_back(format!("CMSG ping\0{number}").into_bytes());
        let until = deadline_in(self.options.timeout);
        self.greeting = Some(Greeting { packets, number, until, complaint: None, answered: false });
        Ok(())
    }

    fn wishes(&self) -> VecDeque<Vec<u8>> {
        let options = &self.options;
        let queue = options.queue.value();
        let tap = match options.tap {
            Tap::Off => None,
            Tap::On => Some("on"),
            Tap::Interface => Some("interface"),
        };
        let wishes = [
            ("name", options.name.as_deref()),
            ("separator", (options.separator == Separator::Dot).then_some(".")),
            ("format", (options.format == Format::Full).then_some("full")),
            ("pack", options.pack.then_some("on")),
            ("echo/off", (!options.echo).then_some("")),
            ("queue", queue.as_deref()),
            ("tap", tap),
            ("heartbeat", self.heartbeat.as_deref()),
            ("listen", (self.hearing || self.inbox.listens()).then_some("")),
            ("whoami", Some("")),
        ];
        let requests = wishes.iter().filter_map(|(key, value)| value.map(|value| format!("CMSG {key}\0{value}")));
        let watches = self.watches.iter().map(|each| format!("CMSG watch\0{}", each.pattern));
        let subscriptions = self.inbox.patterns().map(|pattern| format!("SUB {pattern}"));
        requests.chain(watches).chain(subscriptions).map(String::into_bytes).collect()
    }

    /// Goes on with a greeting. The error is that of a first connection, which the program has to know.
    fn greet(&mut self) -> Result<bool> {
        let result = self.say_greeting();
        match (result, self.greeting.as_mut().and_then(|greeting| greeting.complaint.take())) {
            (Ok(false), complaint) => {
                let Some(greeting) = &mut self.greeting else { return Ok(false) };
                greeting.complaint = complaint;
                if is_past(greeting.until) {
                    self.let_go();
                    return self.put_off("the daemon does not answer");
                }
                return Ok(false);
            }
            (Err(error), _) if *error.code() == Code::Unavailable => {
                self.let_go();
                return self.put_off(error.text());
            }
            (Err(error), _) => {
                self.let_go();
                return self.put_off(error.text()).and(Err(error));
            }
            (Ok(true), Some(error)) if !self.was_connected => {
                self.let_go();
                return Err(error);
            }
            // Our old connection may hold the name a little longer.
            (Ok(true), Some(error)) if *error.code() == Code::NameTaken => {
                self.let_go();
                return self.put_off(error.text());
            }
            (Ok(true), _) => {} // a notice has reported any other rejection
        }
        self.greeting = None;
        self.backoff = BACKOFF_FIRST;
        self.changes += 1;
        if std::mem::replace(&mut self.was_connected, true) {
            self.notify(NoticeKind::Reconnected, 0, None, "connected to the daemon again");
        }
        Ok(true)
    }

    /// Sends what is left of the greeting, and reads. True when the daemon has answered.
    fn say_greeting(&mut self) -> Result<bool> {
        loop {
            while let Some(packet) = self.greeting.as_mut().and_then(|greeting| greeting.packets.pop_front()) {
                if self.send(&packet)? != Sent::Yes {
                    self.greeting.iter_mut().for_each(|greeting| greeting.packets.push_front(packet.clone()));
                    break;
                }
            }
            match self.read_answer() {
                Ok(true) => {}
                // Another connection may have less to say.
                Err(error) if *error.code() == Code::Backlog => return Err(Error::unavailable(error.text())),
                other => return other,
            }
            if self.greeting.as_ref().is_some_and(|greeting| greeting.answered) {
                return Ok(true);
            }
            if self.greeting.as_ref().is_some_and(|greeting| is_past(greeting.until)) {
                return Ok(false);
            }
        }
    }

    /// Has the next attempt come later.
    fn put_off(&mut self, why: &str) -> Result<bool> {
        self.unreachable = why.into();
        self.retry_at = Instant::now() + self.backoff.mul_f64(0.5 + chance());
        self.backoff = BACKOFF_LIMIT.min(self.backoff * 2);
        self.changes += 1;
        Ok(false)
    }

    fn let_go(&mut self) {
        if let Some(socket) = self.socket.take() {
            self.readiness.forget(&socket);
            socket.shut(); // wakes who waits at it
        }
        self.greeting = None;
        self.pack_limit = 0;
        self.withdrawn.clear(); // a new connection knows nothing of them
        self.changes += 1;
    }

    /// Ends a connection that has been read to its end.
    pub(crate) fn lose(&mut self, reason: &str) -> Error {
        let greeting = self.greeting.is_some();
        self.let_go();
        let doubt = self.published - self.confirmed;
        self.confirmed = self.published;
        self.in_doubt += doubt;
        self.unreachable = reason.into();
        if !greeting {
            self.notify(NoticeKind::Disconnected, doubt, None, reason);
        }
        Error::unavailable(reason)
    }

    /// Ends everything. What the program gave is to be dropped without the lock.
    pub(crate) fn close(&mut self) {
        self.let_go();
        self.closed = true;
        self.garbage.extend(self.inbox.clear());
        self.ended.append(&mut self.watches);
        let ids: Vec<_> = self.inbox.subscriptions.iter().map(|each| each.id).collect();
        for id in ids {
            self.garbage.extend(self.inbox.end(id));
            self.inbox.remove(id);
        }
    }

    pub(crate) fn gone(&self) -> Error {
        Error::unavailable(self.unreachable.clone())
    }

    // --- sending ---

    /// Sends a packet on this connection, if there is room.
    pub(crate) fn send(&mut self, packet: &[u8]) -> Result<Sent> {
        loop {
            let socket = self.socket.as_ref().ok_or_else(|| self.gone())?;
            let Err(error) = socket.send(packet) else { return Ok(Sent::Yes) };
            match error.raw_os_error() {
                Some(libc::EAGAIN) => return Ok(Sent::Full),
                Some(libc::ENOBUFS | libc::ENOMEM) => return Ok(Sent::NoMemory),
                Some(libc::EMSGSIZE) => {
                    return Err(Error::new(
                        Code::TooLarge,
                        format!("packet: {} bytes, too many to send", packet.len()),
                    ));
                }
                Some(libc::EINTR) => {}
                _ => {
                    self.read_rest()?; // the daemon is gone
                    return Err(self.lose("the daemon went away"));
                }
            }
        }
    }
}

/// The path that is given, or $BCCN_SOCKET, or the first that exists of the service's socket and the user's own. If
/// neither exists, that of the service, so that the error names it.
fn socket_path(path: Option<&OsStr>) -> OsString {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(path) = path.map(OsString::from).or_else(|| variable("BCCN_SOCKET")) {
        return path;
    }
    let own = variable("XDG_RUNTIME_DIR").map(|folder| Path::new(&folder).join("bccnd/bus.sock"));
    match own {
        Some(own) if !Path::new(SERVICE_SOCKET).exists() && own.exists() => own.into(),
        _ => SERVICE_SOCKET.into(),
    }
}

/// A number from 0 to 1. The last digits of the clock are random enough to spread clients.
fn chance() -> f64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    f64::from(now.subsec_nanos() / 64 % 1024) / 1024.0
}
