//! The driver of the Rust client for the conformance suite (clients/CONFORMANCE.md).

use std::collections::VecDeque;
use std::io::{stdin, stdout, BufRead, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::process::exit;
use std::sync::mpsc::{channel, Receiver, Sender};
use std::time::{Duration, Instant, UNIX_EPOCH};

use bccn::{
    Client, Error, Format, Message, Notice, NoticeKind, Options, Policy, Queue, Request, Separator, Subscription, Tap,
};

/// Between looks at events other than messages.
const SLICE: Duration = Duration::from_millis(20);

/// What is wrong with a command: a code, and a text for people.
type Fault = (String, String);
type Words = Result<Vec<String>, Fault>;
type Run = fn(&mut Driver, &Client, &[Vec<u8>]) -> Words;

enum Event {
    Notice(Notice),
    Call(&'static str, Message),
    News(String, bool),
}

/// The state of the script.
struct Driver {
    settings: Vec<(String, Vec<String>)>,
    address: Option<String>,
    bus: Option<Client>,
    events: (Sender<Event>, Receiver<Event>),
    held: VecDeque<Vec<String>>, // of messages whose loss was printed first
    subscriptions: Vec<Subscription>,
    notices: Vec<String>, // kind, count and code of each that nobody has asked for yet
    reports: bool,        // notices go where they go by default
    last: Option<Message>,
}

fn main() {
    let mut driver = Driver {
        settings: Vec::new(),
        address: None,
        bus: None,
        events: channel(),
        held: VecDeque::new(),
        subscriptions: Vec::new(),
        notices: Vec::new(),
        reports: false,
        last: None,
    };
    for line in stdin().lock().lines() {
        let line = line.expect("the script is text");
        let (name, words) = line.split_once(' ').map_or((line.as_str(), None), |(name, rest)| (name, Some(rest)));
        if name == "exit" {
            break;
        }
        let words: Vec<_> = words.into_iter().flat_map(|rest| rest.split(' ')).map(decoded).collect();
        let answer = match driver.obey(name, &words) {
            Ok(words) => std::iter::once("ok".to_string()).chain(words).collect::<Vec<_>>().join(" "),
            Err((code, text)) => format!("error {code} {}", encoded(text.as_bytes())),
        };
        let mut out = stdout().lock();
        writeln!(out, "{answer}").and_then(|()| out.flush()).expect("somebody listens");
    }
}

fn decoded(word: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = if word == "%" { b"" } else { word.as_bytes() };
    while let Some((&first, after)) = rest.split_first() {
        let hex = after.get(..2).filter(|_| first == b'%').and_then(|hex| std::str::from_utf8(hex).ok());
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    bytes
}

fn encoded(bytes: &[u8]) -> String {
    let word = |byte: &u8| match byte {
        b'!'..=b'~' if *byte != b'%' => char::from(*byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    if bytes.is_empty() {
        return "%".into();
    }
    bytes.iter().map(word).collect()
}

fn text(word: &[u8]) -> String {
    String::from_utf8_lossy(word).into_owned()
}

fn number(word: &[u8]) -> usize {
    text(word).parse().unwrap_or_default()
}

fn seconds(word: &[u8]) -> Duration {
    Duration::from_secs_f64(text(word).parse().unwrap_or_default())
}

fn scripted(code: &str, text: &str) -> Fault {
    (code.into(), text.into())
}

fn fault(error: Error) -> Fault {
    (error.code().to_string(), error.to_string())
}

fn nothing<T>(result: Result<T, Error>) -> Words {
    one(result.map(|_| None))
}

fn one(result: Result<Option<String>, Error>) -> Words {
    result.map(Vec::from_iter).map_err(fault)
}

fn json(result: Result<String, Error>) -> Words {
    one(result.map(|text| Some(encoded(text.as_bytes()))))
}

/// Commands for an open client: name, least and most words.
const COMMANDS: [(&str, usize, usize, Run); 30] = [
    ("whoami", 0, 0, |_, bus, _| Ok(vec![encoded(bus.name().as_bytes())])),
    ("name", 1, 1, |_, bus, words| {
        bus.set_name(&text(&words[0])).map_err(fault)?;
        Ok(vec![encoded(bus.name().as_bytes())])
    }),
    ("sub", 1, 1, |driver, bus, words| driver.hold(bus.subscribe(&text(&words[0])))),
    ("stream", 1, 1, |driver, bus, words| driver.hold(bus.subscribe(&text(&words[0])))),
    ("callback", 1, 1, |driver, bus, words| driver.hold(bus.subscribe_with(&text(&words[0]), driver.callback("call")))),
    ("unsub", 1, 1, |driver, _, words| {
        let index = driver.last(&words[0])?;
        nothing(driver.subscriptions.remove(index).close())
    }),
    ("take", 2, 2, |driver, _, words| {
        let index = driver.last(&words[0])?;
        let event = driver.subscriptions[index].receive_timeout(seconds(&words[1])).map_err(fault)?;
        Ok(event.map_or(vec!["timeout".into()], |message| words_of("msg", &message)))
    }),
    ("listen", 0, 1, |driver, bus, words| match words.first().map(Vec::as_slice) {
        None => nothing(bus.listen()),
        Some(b"first") => nothing(bus.listen_with(driver.callback("first"))),
        Some(_) => nothing(bus.listen_with(driver.callback("second"))),
    }),
    ("control", 1, 2, |_, bus, words| {
        let value = text(words.get(1).map_or(b"", |word| word));
        one(bus.control(&text(&words[0]), &value).map(|answer| Some(encoded(answer.as_bytes()))))
    }),
    ("notices", 0, 0, |driver, _, _| {
        driver.take_events();
        Ok(std::mem::take(&mut driver.notices))
    }),
    ("poll", 1, 1, |_, bus, words| Ok(poll(bus, seconds(&words[0])))),
    ("await", 0, 0, |driver, bus, _| bus.receive().map(|message| driver.show("msg", &message)).map_err(fault)),
    ("origin", 0, 0, |driver, _, _| match driver.last.as_ref().and_then(|message| message.origin.as_ref()) {
        None => Err(scripted("usage", "no message of the format full was printed")),
        Some(origin) => {
            let time = origin.time.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos().to_string();
            let interface = origin.interface.as_ref().map(|name| encoded(name.as_bytes()));
            Ok([time, encoded(&origin.datagram)].into_iter().chain(interface).collect())
        }
    }),
    ("watch", 1, 1, |driver, bus, words| {
        let events = driver.events.0.clone();
        nothing(bus.watch(&text(&words[0]), move |pattern, wanted| {
            let _ = events.send(Event::News(pattern.into(), wanted)); // as with notices
        }))
    }),
    ("unwatch", 1, 1, |_, bus, words| nothing(bus.unwatch(&text(&words[0])))),
    ("heartbeat", 1, 2, |_, bus, words| {
        nothing(bus.heartbeat(seconds(&words[0]), &text(words.get(1).map_or(b"", |word| word))))
    }),
    ("pub", 2, 2, |_, bus, words| nothing(bus.publish(&text(&words[0]), &words[1]))),
    ("pub-to", 2, 2, |_, bus, words| nothing(bus.publish_to(&text(&words[0]), &words[1]))),
    ("pub-all", 1, 1, |_, bus, words| nothing(bus.publish_all(&words[0]))),
    ("datagram", 1, 1, |_, bus, words| nothing(bus.send_datagram(&words[0]))),
    ("barrier", 0, 0, |_, bus, _| nothing(bus.barrier())),
    ("flood", 2, 3, |_, bus, words| nothing(flood(bus, words))),
    ("recv", 1, 1, |driver, bus, words| driver.receive(bus, Instant::now() + seconds(&words[0]))),
    ("count", 2, 2, |_, bus, words| count(bus, number(&words[0]), seconds(&words[1])).map_err(fault)),
    ("request", 3, 4, |_, bus, words| request(bus, words).map_err(fault)),
    ("serve", 2, 4, |_, bus, words| {
        let (wanted, patience) = (number(&words[0]), seconds(&words[1]));
        let served = match words.get(2) {
            Some(pattern) => serve(bus, wanted, patience, &text(pattern), words.len() > 3),
            None => reply(bus, wanted, patience),
        };
        one(served.map(|served| Some(served.to_string())))
    }),
    ("lost", 0, 0, |_, bus, _| Ok(vec![bus.lost().to_string()])),
    ("status", 0, 0, |_, bus, _| json(bus.status())),
    ("clients", 0, 0, |_, bus, _| json(bus.clients())),
    ("sources", 0, 0, |_, bus, _| json(bus.sources())),
];

const SETTINGS: [&str; 10] =
    ["format", "pack", "separator", "queue", "timeout", "echo", "reconnect", "tap", "wait", "as"];

/// The options with a setting of the script.
fn with(options: Options, name: &str, values: &[String]) -> Result<Options, Fault> {
    let value = values[0].as_str();
    let wrong = || scripted("invalid", &format!("{name} takes no {value}"));
    Ok(match (name, value) {
        ("format", "plain") => options.format(Format::Plain),
        ("format", "full") => options.format(Format::Full),
        ("pack", _) => options.pack(value == "on"),
        ("separator", "/") => options.separator(Separator::Slash),
        ("separator", ".") => options.separator(Separator::Dot),
        ("timeout", _) => options.timeout(seconds(value.as_bytes())),
        ("wait", _) => options.wait(seconds(value.as_bytes())),
        ("as", _) => options.name(value),
        ("echo", _) => options.echo(value == "on"),
        ("reconnect", _) => options.reconnect(value == "on"),
        ("tap", "off") => options.tap(Tap::Off),
        ("tap", "on") => options.tap(Tap::On),
        ("tap", "interface") => options.tap(Tap::Interface),
        ("queue", _) => {
            let mut queue = Queue::new();
            for value in values {
                queue = match value.split_once('=').ok_or_else(wrong)? {
                    ("packets", packets) => queue.packets(packets.parse().map_err(|_| wrong())?),
                    ("bytes", bytes) => queue.bytes(bytes.parse().map_err(|_| wrong())?),
                    ("policy", policy) => queue.policy(policy.parse::<Policy>().map_err(fault)?),
                    _ => return Err(wrong()),
                };
            }
            options.queue(queue)
        }
        _ => return Err(wrong()),
    })
}

impl Driver {
    fn obey(&mut self, name: &str, words: &[Vec<u8>]) -> Words {
        match (name, words) {
            (_, [_, ..]) if SETTINGS.contains(&name) => {
                self.settings.retain(|(known, _)| known != name);
                self.settings.push((name.into(), words.iter().map(|word| text(word)).collect()));
            }
            ("open", [] | [_]) => {
                self.address = words.first().map(|word| text(word));
                return self.open();
            }
            ("close", []) => self.close(),
            ("report", [word]) => self.reports = word == b"on",
            ("matches", [pattern, channel, separator]) => {
                let separator = if separator == b"." { Separator::Dot } else { Separator::Slash };
                let matches = bccn::matches(&text(pattern), &text(channel), separator);
                return Ok(vec![if matches { "yes" } else { "no" }.into()]);
            }
            ("dispatch", []) | ("ask", [_, _]) => return Err(scripted("unsupported", "not in Rust")),
            ("version", []) => return Ok(vec![encoded(bccn::VERSION.as_bytes())]),
            ("cancel", [_, _]) => return Err(scripted("unsupported", "a call cannot be cancelled")),
            ("fork", [pattern]) if self.bus.is_some() => return self.fork(pattern == b"A"),
            _ => return self.use_bus(name, words),
        }
        Ok(Vec::new())
    }

    fn use_bus(&mut self, name: &str, words: &[Vec<u8>]) -> Words {
        let command =
            COMMANDS.iter().find(|command| command.0 == name && (command.1..=command.2).contains(&words.len()));
        let run = command.ok_or_else(|| scripted("usage", "no such command, or wrong arguments"))?.3;
        let bus = self.bus.clone().ok_or_else(|| scripted("closed", "there is no open client"))?;
        run(self, &bus, words)
    }

    fn open(&mut self) -> Words {
        self.close();
        let events = self.events.0.clone();
        let mut options = Options::new();
        if !self.reports {
            options = options.on_notice(move |notice| {
                let _ = events.send(Event::Notice(notice.clone())); // fails when the driver has opened another client
            });
        }
        for (name, values) in &self.settings {
            options = with(options, name, values)?;
        }
        if let Some(address) = &self.address {
            options = options.path(address);
        }
        let bus = options.open().map_err(fault)?;
        let name = encoded(bus.name().as_bytes());
        self.bus = Some(bus);
        Ok(vec![name])
    }

    fn close(&mut self) {
        self.subscriptions.clear();
        self.held.clear();
        self.notices.clear();
        self.bus.take().iter().for_each(Client::close);
        self.events = channel();
    }

    fn hold(&mut self, subscription: Result<Subscription, Error>) -> Words {
        self.subscriptions.push(subscription.map_err(fault)?);
        Ok(Vec::new())
    }

    /// Where the last subscription to a pattern is.
    fn last(&self, pattern: &[u8]) -> Result<usize, Fault> {
        let found = self.subscriptions.iter().rposition(|each| each.pattern().as_bytes() == pattern);
        found.ok_or_else(|| scripted("invalid", "there is no such subscription"))
    }

    /// Makes each message an event of recv, which begins with the word.
    fn callback(&self, word: &'static str) -> impl FnMut(&Client, Message) + Send + 'static {
        let events = self.events.0.clone();
        move |_, message| events.send(Event::Call(word, message)).expect("the driver listens")
    }

    /// Puts what has happened behind what is held.
    fn take_events(&mut self) {
        while let Ok(event) = self.events.1.try_recv() {
            match event {
                Event::Notice(notice) => {
                    let code = notice.code.map_or("%".into(), |code| code.to_string());
                    self.notices.extend([word_of(notice.kind).into(), notice.count.to_string(), code]);
                    if matches!(notice.kind, NoticeKind::Disconnected | NoticeKind::Reconnected) {
                        self.held.push_back(vec![word_of(notice.kind).into()]);
                    }
                }
                Event::News(pattern, wanted) => {
                    let answer = if wanted { "yes" } else { "no" };
                    self.held.push_back(vec!["wanted".into(), encoded(pattern.as_bytes()), answer.into()]);
                }
                Event::Call(word, message) => self.hold_message(word, &message),
            }
        }
    }

    fn receive(&mut self, bus: &Client, deadline: Instant) -> Words {
        let mut again = false;
        loop {
            self.take_events();
            if let Some(words) = self.held.pop_front() {
                return Ok(words);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            match bus.receive_timeout(left.min(SLICE)).map_err(fault)? {
                // What was called meanwhile came before it.
                Some(message) => {
                    self.take_events();
                    self.hold_message("msg", &message);
                }
                None if left.is_zero() && again => return Ok(vec!["timeout".into()]),
                None => again = left.is_zero(), // a callback may have been called
            }
        }
    }

    /// Puts a message behind what is held, and its loss before it.
    fn hold_message(&mut self, kind: &str, message: &Message) {
        if message.lost > 0 {
            self.held.push_back(vec!["lost".into(), message.lost.to_string()]);
        }
        let words = self.show(kind, message);
        self.held.push_back(words);
    }

    fn show(&mut self, kind: &str, message: &Message) -> Vec<String> {
        self.last = Some(message.clone());
        words_of(kind, message)
    }

    /// Forks. The child answers the command and goes on with the script; the parent answers the exit of the child.
    fn fork(&mut self, own: bool) -> Words {
        // SAFETY: there is one thread.
        let child = unsafe { libc::fork() };
        if child > 0 {
            let mut status = 0;
            // SAFETY: `status` lives.
            unsafe { libc::waitpid(child, &mut status, 0) };
            return Ok(vec![if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { -1 }.to_string()]);
        }
        let name = match &self.bus {
            _ if own => self.open()?.remove(0),
            Some(bus) => {
                bus.barrier().map_err(fault)?; // connects
                encoded(bus.name().as_bytes())
            }
            None => exit(1),
        };
        Ok(vec![std::process::id().to_string(), name])
    }
}

fn word_of(kind: NoticeKind) -> &'static str {
    match kind {
        NoticeKind::Lost => "lost",
        NoticeKind::Rejected => "rejected",
        NoticeKind::Revoked => "revoked",
        NoticeKind::Closing => "closing",
        NoticeKind::Disconnected => "disconnected",
        NoticeKind::Reconnected => "reconnected",
        NoticeKind::Unclaimed => "unclaimed",
        _ => "?",
    }
}

/// The descriptor, and whether it is readable in time.
fn poll(bus: &Client, patience: Duration) -> Vec<String> {
    let fd = bus.as_fd().as_raw_fd();
    let mut wanted = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: `wanted` lives, and is one.
    let readable = unsafe { libc::poll(&mut wanted, 1, patience.as_millis() as libc::c_int) } > 0;
    vec![fd.to_string(), if readable { "yes" } else { "no" }.into()]
}

fn words_of(kind: &str, message: &Message) -> Vec<String> {
    let mut words = vec![kind.into(), encoded(message.channel.as_bytes()), encoded(&message.payload)];
    if let Some(origin) = &message.origin {
        words.extend([encoded(origin.src.as_bytes()), origin.seq.to_string()]);
        words.extend([encoded(origin.peer.as_bytes()), encoded(origin.verdict.as_bytes())]);
    }
    words
}

fn flood(bus: &Client, words: &[Vec<u8>]) -> Result<(), Error> {
    let (channel, size) = (text(&words[0]), words.get(2).map_or(0, |word| number(word)));
    let mut payload = Vec::new();
    let mut batch = bus.batch();
    for i in 1..=number(&words[1]) {
        payload.clear();
        write!(payload, "{i}").expect("memory");
        payload.resize(payload.len().max(size), b'.');
        batch.publish(&channel, &payload)?;
    }
    batch.flush()
}

fn count(bus: &Client, wanted: usize, patience: Duration) -> Result<Vec<String>, Error> {
    let (mut received, mut lost, mut last) = (0, 0, Vec::new());
    while received < wanted {
        let Some(message) = bus.receive_timeout(patience)? else { break };
        received += 1;
        lost += message.lost;
        last = message.payload;
    }
    Ok(vec![received.to_string(), lost.to_string(), encoded(&last)])
}

fn request(bus: &Client, words: &[Vec<u8>]) -> Result<Vec<String>, Error> {
    let (channel, time) = (text(&words[0]), seconds(&words[2]));
    let replies: Vec<_> = match words.get(3) {
        None => vec![bus.request(&channel, &words[1], time)?],
        Some(count) => bus.request_many(&channel, &words[1], time)?.take(number(count)).collect::<Result<_, _>>()?,
    };
    Ok(replies.iter().map(|reply| encoded(&reply.payload)).collect())
}

/// Replies to what is received.
fn reply(bus: &Client, wanted: usize, patience: Duration) -> Result<usize, Error> {
    let mut served = 0;
    while served < wanted {
        let Some(message) = bus.receive_timeout(patience)? else { break };
        if let Some(request) = message.request() {
            request.reply([b"re:", request.payload.as_slice()].concat())?;
            served += 1;
        }
    }
    Ok(served)
}

/// Serves by a handler, which returns the replies; or they are sent later, when it has returned.
fn serve(bus: &Client, wanted: usize, patience: Duration, pattern: &str, later: bool) -> Result<usize, Error> {
    let (sender, requests) = channel();
    let answer = |request: &Request| [b"re:", request.payload.as_slice()].concat();
    let service = bus.serve(pattern, move |request| {
        sender.send(request.clone()).expect("the driver counts");
        (!later).then(|| answer(request))
    })?;
    let (mut served, mut last) = (0, Instant::now());
    while served < wanted && last.elapsed() < patience {
        bus.receive_timeout(patience.saturating_sub(last.elapsed()).min(SLICE))?;
        for request in requests.try_iter() {
            if later {
                request.reply(answer(&request))?;
            }
            (served, last) = (served + 1, Instant::now());
        }
    }
    service.close()?;
    Ok(served)
}
