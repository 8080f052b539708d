//! What a client does with its session, and waits for. Each function is written once: in a `Client` the waits block, in
//! an `AsyncClient` they are those of its task. A function that is given up leaves nothing, like one that fails.

use std::mem::take;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::current;
use std::time::{Duration, Instant};

use crate::error::Code;
use crate::inbox::{Callback, Source, Target, LISTENER};
use crate::protocol::{append_msg, build_control, build_sub, unpack, Message};
use crate::session::{deadline_in, is_past, Ask, Change, Deadline, Sent, Session, Wait, BACKLOG_LIMIT, GLANCE_PACKETS};
use crate::shared::{AtEnd, Shared};
use crate::watch::{OnNews, Watch};
use crate::{Client, Error, Result};

/// poll(2) does not wait until the kernel has memory again.
const MEMORY_PAUSE: Duration = Duration::from_millis(1);

/// What is asked of the daemon.
pub(crate) struct Question<'a> {
    /// None: only a ping.
    pub(crate) packet: Option<&'a [u8]>,
    /// The packet is for this connection alone: another has heard of it in its greeting.
    pub(crate) only: Option<u64>,
    /// The key of the answer that is kept; empty: none.
    pub(crate) key: &'a str,
    pub(crate) change: Change,
    /// The connection on which the packet has left without an answer; 0: none.
    pub(crate) said: &'a AtomicU64,
}

impl<'a> Question<'a> {
    pub(crate) fn new(packet: Option<&'a [u8]>, said: &'a AtomicU64) -> Question<'a> {
        Question { packet, only: None, key: "", change: Change::Nothing, said }
    }
}

/// What became of something that cannot always be done at once.
enum Step<T> {
    Done(T),
    Wait(Wait),
}

/// What came of a look for a message.
pub(crate) enum Received {
    Message(Message),
    Later(Option<Wait>),
}

impl Session {
    /// Hands a packet with so many messages to the daemon, if it takes it.
    fn hand_over(&mut self, packet: &[u8], messages: u64, deadline: Deadline) -> Result<Step<()>> {
        loop {
            if !self.connect()? {
                return self.await_connection(deadline).map(Step::Wait);
            }
            let sent = self.send(packet).and_then(|sent| self.make_room(sent, deadline));
            match sent {
                Ok(None) => {
                    self.published += messages;
                    return Ok(Step::Done(()));
                }
                Ok(Some(Step::Wait(wait))) => return Ok(Step::Wait(wait)),
                Ok(Some(Step::Done(()))) => {} // something was read: try again
                Err(error) if *error.code() == Code::Unavailable && !is_past(deadline) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Hands it over at once if that is possible. Else what it waits for, and until when.
    fn hand_over_now(&mut self, packet: &[u8], messages: u64) -> Result<Option<(Deadline, Wait)>> {
        let sent = self.is_connected() && matches!(self.send(packet), Ok(Sent::Yes));
        if sent {
            self.published += messages;
        } else {
            let deadline = deadline_in(self.options.timeout);
            if let Step::Wait(wait) = self.hand_over(packet, messages, deadline)? {
                return Ok(Some((deadline, wait)));
            }
        }
        self.glance();
        Ok(None)
    }

    /// What to do about a packet that found no room: `None` if it did. It keeps reading: the daemon may be waiting for
    /// us to read.
    fn make_room(&mut self, sent: Sent, deadline: Deadline) -> Result<Option<Step<()>>> {
        match sent {
            Sent::Yes => Ok(None),
            Sent::Full => {
                let reading = self.inbox.bytes() < BACKLOG_LIMIT;
                if reading && self.read_packet()? && !is_past(deadline) {
                    return Ok(Some(Step::Done(())));
                }
                if is_past(deadline) {
                    return Err(Error::timeout("not sent: the daemon takes no more"));
                }
                Ok(Some(Step::Wait(self.wait(reading, true, deadline))))
            }
            Sent::NoMemory if is_past(deadline) => Err(Error::timeout("not sent: the kernel has no memory for it")),
            Sent::NoMemory => Ok(Some(Step::Wait(self.wait(false, false, deadline_in(MEMORY_PAUSE))))),
        }
    }

    /// Goes on with a question; the ticket is 0 until it is its turn.
    fn pursue(&mut self, ticket: &mut u64, question: &Question<'_>, deadline: Deadline) -> Result<Step<String>> {
        if !self.ask.as_ref().is_some_and(|ask| ask.ticket == *ticket) {
            if self.ask.is_some() {
                return match is_past(deadline) {
                    true => Err(Error::timeout("the daemon does not answer")),
                    false => Ok(Step::Wait(self.wait(false, false, deadline))),
                };
            }
            *ticket = self.number();
            let (key, change) = (question.key.into(), question.change.clone());
            self.ask = Some(Ask::new(*ticket, key, change));
        }
        let mut late = false; // much may come that is not the answer
        loop {
            if let Some(ask) = self.ask.as_mut().filter(|ask| ask.answered) {
                question.said.store(0, Ordering::Relaxed);
                return match ask.complaint.take() {
                    Some(error) => Err(error),
                    None => Ok(Step::Done(ask.answer.take().unwrap_or_default())),
                };
            }
            if late {
                return Err(Error::timeout("the daemon does not answer"));
            }
            if !self.connect()? {
                return self.await_connection(deadline).map(Step::Wait);
            }
            let step = self.say(question).and_then(|sent| match sent {
                Sent::Yes if self.read_answer()? => Ok(None),
                Sent::Yes if is_past(deadline) => Err(Error::timeout("the daemon does not answer")),
                Sent::Yes => Ok(Some(Step::Wait(self.wait(true, false, deadline)))),
                other => self.make_room(other, deadline),
            });
            match step {
                Ok(Some(Step::Wait(wait))) => return Ok(Step::Wait(wait)),
                Ok(_) => late = is_past(deadline),
                Err(error) if *error.code() == Code::Unavailable && !is_past(deadline) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Sends what is left to send of a question on this connection.
    fn say(&mut self, question: &Question<'_>) -> Result<Sent> {
        let connection = self.connection;
        let Some(ask) = self.ask.as_mut() else { return Ok(Sent::Yes) };
        if ask.connection != connection {
            (ask.connection, ask.said, ask.number) = (connection, false, 0);
            (ask.answer, ask.complaint) = (None, None);
            question.said.store(0, Ordering::Relaxed);
        }
        let (said, number) = (ask.said, ask.number);
        if number > 0 {
            return Ok(Sent::Yes);
        }
        if !said {
            self.check_backlog()?;
            match self.take_back()? {
                Sent::Yes => {}
                other => return Ok(other),
            }
            if let Some(packet) = question.packet.filter(|_| question.only.map_or(true, |only| only == connection)) {
                match self.send(packet)? {
                    Sent::Yes => question.said.store(connection, Ordering::Relaxed),
                    other => return Ok(other),
                }
            }
            self.ask.iter_mut().for_each(|ask| ask.said = true);
        }
        let number = self.number();
        let sent = self.send(format!("CMSG ping\0{number}").as_bytes())?;
        if sent == Sent::Yes {
            let published = self.published;
            self.ask.iter_mut().for_each(|ask| (ask.number, ask.published) = (number, published));
        }
        Ok(sent)
    }

    /// The next message of a stream, if it is there and no callback comes before it; or else what to wait for, if that
    /// is known.
    pub(crate) fn receive_now(&mut self, source: Source) -> Result<Received> {
        for _ in 0..GLANCE_PACKETS {
            if self.inbox.has_calls() {
                return Ok(Received::Later(None));
            }
            if let Some(message) = self.inbox.take(source) {
                return Ok(Received::Message(message));
            }
            if !self.is_connected() || !self.withdrawn.is_empty() || self.check_source(source).is_err() {
                return Ok(Received::Later(None));
            }
            match self.read_for(source) {
                Ok(true) => {}
                Ok(false) => return Ok(Received::Later(Some(self.wait(true, false, None)))),
                Err(error) if *error.code() == Code::Unavailable => return Ok(Received::Later(None)),
                Err(error) => return Err(error),
            }
        }
        Ok(Received::Later(None))
    }

    /// Reads a packet for a program that receives from this stream, and connects again when that is due. What there is
    /// to wait for, if nothing was to be done.
    pub(crate) fn read_on(&mut self, source: Source, deadline: Deadline) -> Result<Option<Wait>> {
        if !self.withdrawn.is_empty() && self.is_connected() {
            let _ = self.take_back();
        }
        if self.inbox.bytes() > BACKLOG_LIMIT && self.inbox.has_calls() {
            return match self.calling {
                Some(thread) if thread != current().id() => Ok(Some(self.wait(false, false, deadline))),
                _ => self.check_backlog().map(|()| None),
            };
        }
        let read = match self.connect() {
            Ok(true) => self.read_for(source),
            Ok(false) => {
                let wait = self.await_connection(None)?;
                return Ok(Some(Wait { until: wait.until.into_iter().chain(deadline).min(), ..wait }));
            }
            Err(error) => return Err(error),
        };
        match read {
            Ok(true) => Ok(None),
            Ok(false) => Ok(Some(self.wait(true, false, deadline))),
            Err(error) if *error.code() == Code::Unavailable && self.options.reconnect => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether the stream of this source goes on.
    fn check_source(&mut self, source: Source) -> Result<()> {
        match source {
            _ if self.closed => Err(Error::closed()),
            Source::Own(id) if !self.inbox.get(id).is_some_and(|each| matches!(each.target, Target::Own(_))) => {
                Err(Error::new(Code::Closed, "the subscription has ended"))
            }
            _ => Ok(()),
        }
    }

    /// Ends a subscribe or an unsubscribe that has failed. Its SUB has left, or its UNSUB has not.
    pub(crate) fn undo(&mut self, id: u64, owes: bool, since: u64) {
        let callbacks = self.inbox.end(id);
        self.garbage.extend(callbacks);
        let pattern = self.inbox.get(id).map(|each| each.pattern.clone());
        self.inbox.remove(id);
        match pattern {
            Some(pattern) if pattern == LISTENER => self.hearing = true, // the daemon delivers on: only replies count
            Some(pattern) if owes && self.socket.is_some() => self.withdraw(&pattern, since),
            _ => {}
        }
    }
}

impl Shared {
    pub(crate) async fn open(&self) -> Result<()> {
        let start = Instant::now();
        let (wait, timeout) = {
            let session = self.lock()?;
            (start.checked_add(session.options.wait), start.checked_add(session.options.timeout))
        };
        loop {
            let rest = {
                let mut session = self.lock()?;
                if session.connect()? {
                    return Ok(());
                }
                // A busy daemon is one that is there, and a greeting has its own time.
                let deadline = match session.busy {
                    _ if session.greeting.is_some() => None,
                    true => wait.zip(timeout).map(|(one, other)| one.max(other)),
                    false => wait,
                };
                session.await_connection(deadline)?
            };
            self.rest(rest).await;
        }
    }

    pub(crate) fn usual_deadline(&self) -> Deadline {
        deadline_in(self.peek().options.timeout)
    }

    // --- publishing ---

    /// Publishes `head` and `payload` on the channel of this sign and name.
    pub(crate) async fn publish(&self, sign: &str, channel: &str, head: &[u8], payload: &[u8]) -> Result<()> {
        match self.begin_publish(sign, channel, head, payload)? {
            None => Ok(()),
            Some((packet, deadline, wait)) => self.transmit(&packet, 1, deadline, wait).await,
        }
    }

    /// The same, by a thread.
    pub(crate) fn publish_here(&self, sign: &str, channel: &str, head: &[u8], payload: &[u8]) -> Result<()> {
        let Some((packet, deadline, mut wait)) = self.begin_publish(sign, channel, head, payload)? else {
            return Ok(());
        };
        loop {
            self.rest_here(wait);
            match self.lock()?.hand_over(&packet, 1, deadline)? {
                Step::Done(()) => return Ok(()),
                Step::Wait(again) => wait = again,
            }
        }
    }

    /// Publishes at once if that is possible. Else the packet, and what it waits for.
    fn begin_publish(
        &self,
        sign: &str,
        channel: &str,
        head: &[u8],
        payload: &[u8],
    ) -> Result<Option<(Vec<u8>, Deadline, Wait)>> {
        let mut session = self.lock()?;
        let mut packet = take(&mut session.out);
        packet.clear();
        let step = append_msg(&mut packet, sign, channel, head, payload);
        let step = step.and_then(|()| session.hand_over_now(&packet, 1));
        if let Ok(Some((deadline, wait))) = step {
            return Ok(Some((packet, deadline, wait)));
        }
        session.out = packet;
        step.map(|_| None)
    }

    /// Hands over one packet with so many messages.
    pub(crate) async fn send_messages(&self, packet: &[u8], messages: u64) -> Result<()> {
        let step = self.lock()?.hand_over_now(packet, messages)?;
        match step {
            None => Ok(()),
            Some((deadline, wait)) => self.transmit(packet, messages, deadline, wait).await,
        }
    }

    async fn transmit(&self, packet: &[u8], messages: u64, deadline: Deadline, wait: Wait) -> Result<()> {
        self.rest(wait).await;
        self.send_until(packet, messages, deadline).await
    }

    /// Hands over one packet with so many messages, in this time.
    pub(crate) async fn send_until(&self, packet: &[u8], messages: u64, deadline: Deadline) -> Result<()> {
        loop {
            let wait = match self.lock()?.hand_over(packet, messages, deadline)? {
                Step::Done(()) => return Ok(()),
                Step::Wait(wait) => wait,
            };
            self.rest(wait).await;
        }
    }

    /// Hands over a PACK, or if it is not agreed what is in it, one by one.
    pub(crate) async fn send_pack(&self, pack: &[u8], messages: u64) -> Result<()> {
        if messages > 1 && pack.len() <= self.lock()?.pack_limit {
            return self.send_messages(pack, messages).await;
        }
        for packet in unpack(pack) {
            self.send_messages(packet?, 1).await?;
        }
        Ok(())
    }

    // --- asking ---

    pub(crate) async fn ask(&self, question: Question<'_>, deadline: Deadline) -> Result<String> {
        let ticket = AtomicU64::new(0);
        let _ended = AtEnd(|| {
            let mut session = self.peek();
            if session.ask.as_ref().is_some_and(|ask| ask.ticket == ticket.load(Ordering::Relaxed)) {
                if let Some(Ask { change: Change::Listen(Some(callback)), .. }) = session.ask.take() {
                    session.garbage.push(callback);
                }
                session.changes += 1;
            }
        });
        loop {
            let wait = {
                let mut session = self.lock()?;
                let mut number = ticket.load(Ordering::Relaxed);
                let step = session.pursue(&mut number, &question, deadline);
                ticket.store(number, Ordering::Relaxed);
                match step? {
                    Step::Done(answer) => return Ok(answer),
                    Step::Wait(wait) => wait,
                }
            };
            self.rest(wait).await;
        }
    }

    /// Makes a control request, and has the session remember what the daemon agrees to.
    pub(crate) async fn control(&self, key: &str, value: &str, change: Change, deadline: Deadline) -> Result<String> {
        let packet = build_control(key, value)?;
        if key == "ping" {
            return Err(Error::invalid("control key \"ping\": call barrier"));
        }
        let said = AtomicU64::new(0);
        self.ask(Question { key, change, ..Question::new(Some(&packet), &said) }, deadline).await
    }

    pub(crate) async fn barrier(&self) -> Result<()> {
        self.ask(Question::new(None, &AtomicU64::new(0)), self.usual_deadline()).await?;
        self.lock()?.take_rejections()
    }

    /// The id of a new subscription. Its pattern may be that of a listener.
    pub(crate) async fn serve(&self, pattern: &str, callback: Option<Callback>) -> Result<u64> {
        match pattern {
            LISTENER => self.hold(pattern, build_control("listen", "")?, callback).await,
            _ => self.subscribe(pattern, callback).await,
        }
    }

    /// The id of a new subscription.
    pub(crate) async fn subscribe(&self, pattern: &str, callback: Option<Callback>) -> Result<u64> {
        self.hold(pattern, build_sub("SUB", pattern)?, callback).await
    }

    async fn hold(&self, pattern: &str, packet: Vec<u8>, callback: Option<Callback>) -> Result<u64> {
        let (said, agreed) = (AtomicU64::new(0), AtomicU64::new(0));
        let (id, since) = {
            let mut session = self.lock()?;
            let since = session.inbox.next_serial();
            (session.inbox.add(pattern, callback), since)
        };
        let _ended = AtEnd(|| {
            if agreed.load(Ordering::Relaxed) == 0 {
                let mut session = self.peek();
                let said = said.load(Ordering::Relaxed);
                let owes = said > 0 && said == session.connection;
                session.undo(id, owes, since);
            }
        });
        let question = Question { change: Change::Hold(id), ..Question::new(Some(&packet), &said) };
        self.ask(question, self.usual_deadline()).await?;
        agreed.store(1, Ordering::Relaxed);
        Ok(id)
    }

    /// Ends a subscription at once, even if the daemon does not answer.
    pub(crate) async fn unsubscribe(&self, id: u64) -> Result<()> {
        let said = AtomicU64::new(0);
        let (packet, connection, since) = {
            let mut session = self.lock()?;
            let Some(held) = session.inbox.get(id).filter(|held| held.held) else { return Ok(()) };
            if held.pattern == LISTENER {
                session.undo(id, false, 0);
                session.changes += 1;
                return Ok(());
            }
            let packet = build_sub("UNSUB", &held.pattern)?;
            let callbacks = session.inbox.end(id);
            session.garbage.extend(callbacks);
            session.changes += 1; // somebody may receive from it
            let connection = if session.socket.is_some() { session.connection } else { 0 };
            (packet, connection, session.inbox.next_serial())
        };
        let answered = AtomicU64::new(0);
        let _ended = AtEnd(|| {
            let mut session = self.peek();
            let left = answered.load(Ordering::Relaxed) > 0 || said.load(Ordering::Relaxed) > 0;
            let owes = !left && connection > 0 && connection == session.connection;
            session.undo(id, owes, since);
        });
        let question = Question { only: Some(connection), ..Question::new(Some(&packet), &said) };
        let result = self.ask(question, self.usual_deadline()).await;
        let settled = result.as_ref().map_or_else(|error| error.code().is_of_the_daemon(), |_| true);
        answered.store(u64::from(settled), Ordering::Relaxed);
        result.map(drop)
    }

    /// Listens, in place of an earlier call. Where it fails, what comes for it alone is dropped.
    pub(crate) async fn listen(&self, callback: Option<Callback>) -> Result<()> {
        let packet = build_control("listen", "")?;
        let said = AtomicU64::new(0);
        let since = self.lock()?.inbox.next_serial();
        let _ended = AtEnd(|| {
            let mut session = self.peek();
            if said.load(Ordering::Relaxed) == session.connection {
                session.sift(since);
            }
        });
        let question = Question { change: Change::Listen(callback), ..Question::new(Some(&packet), &said) };
        self.ask(question, self.usual_deadline()).await.map(drop)
    }

    // --- watching ---

    pub(crate) async fn watch(&self, pattern: &str, callback: OnNews) -> Result<()> {
        let packet = build_control("watch", pattern)?;
        let watch = Watch::new(pattern, callback);
        let (said, agreed) = (AtomicU64::new(0), AtomicU64::new(0));
        let _ended = AtEnd(|| {
            if agreed.load(Ordering::Relaxed) == 0 {
                self.peek().give_up_watch(&watch, said.load(Ordering::Relaxed));
            }
        });
        let question = Question { change: Change::Watch(watch.clone()), ..Question::new(Some(&packet), &said) };
        self.ask(question, self.usual_deadline()).await?;
        agreed.store(1, Ordering::Relaxed);
        Ok(())
    }

    pub(crate) async fn unwatch(&self, pattern: &str) -> Result<()> {
        let packet = build_control("unwatch", pattern)?;
        let connection = {
            let mut session = self.lock()?;
            (session.end_watch(pattern) && session.socket.is_some()).then_some(session.connection)
        };
        let (said, answered) = (AtomicU64::new(0), AtomicU64::new(0));
        let _ended = AtEnd(|| {
            let mut session = self.peek();
            let left = answered.load(Ordering::Relaxed) > 0 || said.load(Ordering::Relaxed) > 0;
            if !left && connection == Some(session.connection) {
                session.take_back_watch(pattern);
            }
        });
        let question = Question { change: Change::Unwatch(pattern.into()), ..Question::new(Some(&packet), &said) };
        let result = self.ask(question, self.usual_deadline()).await;
        let settled = result.as_ref().map_or_else(|error| error.code().is_of_the_daemon(), |_| true);
        answered.store(u64::from(settled), Ordering::Relaxed);
        result.map(drop)
    }

    // --- receiving ---

    /// The next message of a stream; calls the callbacks meanwhile. `None` at the deadline. What to wait for `first` may
    /// be known.
    pub(crate) async fn receive(
        &self,
        client: &Client,
        source: Source,
        deadline: Deadline,
        first: Option<Wait>,
    ) -> Result<Option<Message>> {
        let mut worked = false;
        if let Some(wait) = first {
            if is_past(deadline) {
                return Ok(None);
            }
            self.rest(Wait { until: deadline, ..wait }).await;
        }
        loop {
            let wait = {
                let mut session = self.lock()?;
                if session.calling.is_none() {
                    if let Some((message, callback)) = session.inbox.take_call(source) {
                        session.calling = Some(current().id());
                        drop(session);
                        self.call(client, message, &callback);
                        worked = true;
                        continue;
                    }
                }
                if let Some(message) = session.inbox.take(source) {
                    return Ok(Some(message));
                }
                session.check_source(source)?;
                if worked && is_past(deadline) {
                    return Ok(None); // callbacks that are slower than their messages, or a flood, do not hold the caller
                }
                match session.read_on(source, deadline)? {
                    None => {
                        worked = true;
                        continue;
                    }
                    Some(_) if is_past(deadline) => return Ok(None),
                    Some(wait) => wait,
                }
            };
            self.rest(wait).await;
        }
    }
}
