//! The driver of the Rust client for the conformance suite (clients/CONFORMANCE.md).

use std::collections::VecDeque;
use std::io::{stdin, stdout, BufRead, Write};
use std::process::exit;
use std::sync::mpsc::{channel, Receiver};
use std::time::{Duration, Instant};

use bccn::{Client, Error, Message, NoticeKind, Options};

/// Between looks at events other than messages.
const SLICE: Duration = Duration::from_millis(20);

type Words = Result<Vec<String>, Error>;
type Run = fn(&mut Driver, &mut Client, &[Vec<u8>]) -> Words;

/// The state of the script.
#[derive(Default)]
struct Driver {
    full: bool,
    pack: bool,
    separator: Option<char>,
    queue: Option<String>,
    timeout: Option<Duration>,
    address: Option<String>,
    bus: Option<Client>,
    events: Option<Receiver<NoticeKind>>,
    held: VecDeque<Message>, // the loss before it is printed, and the message not yet
}

fn main() {
    let mut driver = Driver::default();
    for line in stdin().lock().lines() {
        let line = line.expect("the script is text");
        let (name, words) = line.split_once(' ').map_or((line.as_str(), None), |(name, rest)| (name, Some(rest)));
        if name == "exit" {
            break;
        }
        let words: Vec<_> = words.into_iter().flat_map(|rest| rest.split(' ')).map(decoded).collect();
        let answer = match driver.obey(name, &words) {
            Ok(words) => std::iter::once("ok".to_string()).chain(words).collect::<Vec<_>>().join(" "),
            Err(error) => format!("error {} {}", error.code(), encoded(error.to_string().as_bytes())),
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

/// An error of the script itself.
fn scripted(code: &str, text: &str) -> Error {
    Error::Rejected { code: code.into(), text: text.into() }
}

fn nothing(result: Result<(), Error>) -> Words {
    result.map(|()| Vec::new())
}

/// Commands for an open client: name, least and most words.
const COMMANDS: [(&str, usize, usize, Run); 15] = [
    ("whoami", 0, 0, |_, bus, _| Ok(vec![encoded(bus.whoami()?.as_bytes())])),
    ("name", 1, 1, |_, bus, words| {
        bus.set_name(&text(&words[0]))?;
        Ok(vec![encoded(bus.name().as_bytes())])
    }),
    ("sub", 1, 1, |_, bus, words| nothing(bus.subscribe(&text(&words[0])))),
    ("unsub", 1, 1, |_, bus, words| nothing(bus.unsubscribe(&text(&words[0])))),
    ("listen", 0, 0, |_, bus, _| nothing(bus.listen())),
    ("heartbeat", 1, 2, |_, bus, words| {
        nothing(bus.heartbeat_start(number(&words[0]) as u32, &text(words.get(1).map_or(b"", |word| word))))
    }),
    ("pub", 2, 2, |_, bus, words| nothing(bus.publish(&text(&words[0]), &words[1]))),
    ("pub-to", 2, 2, |_, bus, words| nothing(bus.send_to(&text(&words[0]), &words[1]))),
    ("pub-all", 1, 1, |_, bus, words| nothing(bus.send_all(&words[0]))),
    ("barrier", 0, 0, |_, bus, _| nothing(bus.barrier())),
    ("flood", 2, 3, |_, bus, words| flood(bus, words)),
    ("recv", 1, 1, |driver, bus, words| driver.receive(bus, Instant::now() + seconds(&words[0]))),
    ("count", 2, 2, |_, bus, words| count(bus, number(&words[0]), seconds(&words[1]))),
    ("request", 3, 4, |_, bus, words| {
        let most = words.get(3).map_or(1, |word| number(word));
        let answers = bus.request_many(&text(&words[0]), &words[1], most, seconds(&words[2]))?;
        Ok(answers.iter().map(|answer| encoded(&answer.payload)).collect())
    }),
    ("serve", 2, 2, |_, bus, words| serve(bus, number(&words[0]), seconds(&words[1]))),
];

impl Driver {
    fn obey(&mut self, name: &str, words: &[Vec<u8>]) -> Words {
        match (name, words) {
            ("format", [format]) => self.full = format == b"full",
            ("pack", [pack]) => self.pack = pack == b"on",
            ("separator", [separator]) => self.separator = text(separator).chars().next(),
            ("queue", [_, ..]) => self.queue = Some(words.iter().map(|word| text(word)).collect::<Vec<_>>().join(" ")),
            ("open", [] | [_]) => {
                self.address = words.first().map(|word| text(word));
                return self.open();
            }
            ("close", []) => self.bus = None,
            ("timeout", [time]) => self.timeout = Some(seconds(time)),
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
        let mut bus = self.bus.take().ok_or_else(|| scripted("closed", "there is no open client"))?;
        let result = run(self, &mut bus, words);
        self.bus = Some(bus);
        result
    }

    fn open(&mut self) -> Words {
        self.bus = None;
        self.held.clear();
        let (sender, events) = channel();
        let mut options = Options::new().full(self.full).pack(self.pack).on_notice(move |notice| {
            let _ = sender.send(notice.kind); // fails when the driver has opened another client
        });
        if let Some(separator) = self.separator {
            options = options.separator(separator);
        }
        if let Some(timeout) = self.timeout {
            options = options.timeout(timeout);
        }
        if let Some(queue) = &self.queue {
            options = options.queue(queue);
        }
        let bus = options.open(self.address.as_deref())?;
        let name = encoded(bus.name().as_bytes());
        (self.bus, self.events) = (Some(bus), Some(events));
        Ok(vec![name])
    }

    fn receive(&mut self, bus: &mut Client, deadline: Instant) -> Words {
        loop {
            let event = self.events.as_ref().and_then(|events| events.try_recv().ok());
            match event {
                Some(NoticeKind::Disconnected) => return Ok(vec!["disconnected".into()]),
                Some(NoticeKind::Reconnected) => return Ok(vec!["reconnected".into()]),
                Some(_) => continue,
                None => {}
            }
            if let Some(message) = self.held.pop_front() {
                return Ok(words_of(&message));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            match bus.recv_timeout(left.min(SLICE))? {
                Some(message) if message.lost > 0 => {
                    let lost = message.lost.to_string();
                    self.held.push_back(message);
                    return Ok(vec!["lost".into(), lost]);
                }
                Some(message) => return Ok(words_of(&message)),
                None if left.is_zero() => return Ok(vec!["timeout".into()]),
                None => {}
            }
        }
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
        let name = match &mut self.bus {
            _ if own => self.open()?.remove(0),
            Some(bus) => encoded(bus.whoami()?.as_bytes()),
            None => exit(1),
        };
        Ok(vec![std::process::id().to_string(), name])
    }
}

fn words_of(message: &Message) -> Vec<String> {
    let mut words = vec!["msg".into(), encoded(message.channel.as_bytes()), encoded(&message.payload)];
    if let Some(origin) = &message.origin {
        words.extend([encoded(origin.src.as_bytes()), origin.seq.to_string()]);
        words.extend([encoded(origin.peer.as_bytes()), encoded(origin.verdict.as_bytes())]);
    }
    words
}

fn flood(bus: &mut Client, words: &[Vec<u8>]) -> Words {
    let (channel, size) = (text(&words[0]), words.get(2).map_or(0, |word| number(word)));
    let mut payload = Vec::new();
    let mut batch = bus.batch();
    for i in 1..=number(&words[1]) {
        payload.clear();
        write!(payload, "{i}").expect("memory");
        payload.resize(payload.len().max(size), b'.');
        batch.publish(&channel, &payload)?;
    }
    nothing(batch.flush())
}

fn count(bus: &mut Client, wanted: usize, patience: Duration) -> Words {
    let (mut received, mut lost, mut last) = (0, 0, Vec::new());
    while received < wanted {
        let Some(message) = bus.recv_timeout(patience)? else { break };
        received += 1;
        lost += message.lost;
        last = message.payload;
    }
    Ok(vec![received.to_string(), lost.to_string(), encoded(&last)])
}

fn serve(bus: &mut Client, wanted: usize, patience: Duration) -> Words {
    let mut served = 0;
    while served < wanted {
        let Some(message) = bus.recv_timeout(patience)? else { break };
        if let Some(request) = message.request() {
            bus.reply(&request, [b"re:", request.question].concat())?;
            served += 1;
        }
    }
    Ok(vec![served.to_string()])
}
