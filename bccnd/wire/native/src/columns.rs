//! RECV packets as columns (`columns.py`).

use std::collections::HashMap;

use crate::bccn1::header;
use crate::sbus::unpack;

const PACK: &[u8] = b"PACK ";
const TIME_DIGITS: usize = 20;
const NOWHERE: &[u8] = b"-";

/// Numbers for words, in the order in which they come; most are the same as the one before.
#[derive(Default)]
pub struct Index<'a> {
    pub numbers: Vec<u8>,
    pub words: Vec<&'a [u8]>,
    known: HashMap<&'a [u8], i32>,
    last: i32,
}

impl<'a> Index<'a> {
    fn add(&mut self, word: &'a [u8]) {
        if self.words.get(self.last as usize) != Some(&word) {
            let next = self.words.len() as i32;
            self.last = *self.known.entry(word).or_insert(next);
            if self.last == next {
                self.words.push(word);
            }
        }
        self.numbers.extend_from_slice(&self.last.to_ne_bytes());
    }
}

#[derive(Default)]
pub struct Columns<'a> {
    pub rows: usize,
    pub time_ns: Vec<u8>,
    pub size: Vec<u8>,
    pub seq: Vec<u8>,
    pub sound: Vec<u8>,
    pub peer: Index<'a>,
    pub verdict: Index<'a>,
    pub interface: Index<'a>,
    pub mode: Index<'a>,
    pub src: Index<'a>,
    pub chan: Index<'a>,
    pub payload_at: Vec<u8>,
    pub payload: Vec<u8>,
    pub others: Vec<(usize, &'a [u8])>,
}

struct Recv<'a> {
    peer: &'a [u8],
    time_ns: i64,
    verdict: &'a [u8],
    interface: &'a [u8],
    datagram: &'a [u8],
}

fn parse(packet: &[u8]) -> Option<Recv<'_>> {
    let rest = packet.strip_prefix(b"RECV ")?;
    let nul = rest.iter().position(|byte| *byte == 0)?;
    let mut fields = rest[..nul].split(|byte| *byte == b' ');
    let (peer, digits, verdict) = (fields.next()?, fields.next()?, fields.next()?);
    let interface = fields.next().unwrap_or(NOWHERE);
    let empty = peer.is_empty() || verdict.is_empty() || interface.is_empty();
    if empty || fields.next().is_some() || digits.is_empty() || digits.len() > TIME_DIGITS {
        return None;
    }
    let time_ns = digits.iter().try_fold(0i64, |time: i64, digit| {
        let digit = digit.is_ascii_digit().then(|| i64::from(digit - b'0'))?;
        time.checked_mul(10)?.checked_add(digit)
    })?;
    Some(Recv { peer, time_ns, verdict, interface, datagram: &rest[nul + 1..] })
}

impl<'a> Columns<'a> {
    /// The packets at these spans, and those inside a PACK.
    pub fn of(memory: &'a [u8], starts: &[usize], ends: &[usize]) -> Self {
        let mut columns = Columns::default();
        columns.payload_at.extend_from_slice(&0i32.to_ne_bytes());
        for (&start, &end) in starts.iter().zip(ends) {
            let inside = if memory[start..end].starts_with(PACK) { unpack(memory, start, end) } else { None };
            match inside {
                Some((starts, ends)) => {
                    for (start, end) in starts.into_iter().zip(ends) {
                        columns.add(&memory[start..end]);
                    }
                }
                None => columns.add(&memory[start..end]),
            }
        }
        columns
    }

    fn add(&mut self, packet: &'a [u8]) {
        let Some(recv) = parse(packet) else {
            self.others.push((self.rows, packet));
            return;
        };
        self.rows += 1;
        self.time_ns.extend_from_slice(&recv.time_ns.to_ne_bytes());
        self.size.extend_from_slice(&(recv.datagram.len() as i32).to_ne_bytes());
        self.peer.add(recv.peer);
        self.verdict.add(recv.verdict);
        self.interface.add(recv.interface);
        let found = header(recv.datagram);
        self.sound.push(u8::from(found.is_some()));
        let header = found.unwrap_or_default();
        self.seq.extend_from_slice(&header.seq.to_ne_bytes());
        self.mode.add(&recv.datagram[header.algorithm]);
        self.src.add(&recv.datagram[header.src]);
        self.chan.add(&recv.datagram[header.chan]);
        self.payload.extend_from_slice(&recv.datagram[header.payload..]);
        self.payload_at.extend_from_slice(&(self.payload.len() as i32).to_ne_bytes());
    }
}
