//! BCCN1 (`bccn1.py`): `BCCN1[<len>[:hmac=<sum>]]<src>:<seq>:<chan>|<payload>`.

use std::io::Write;
use std::ops::Range;

use hmac::{Hmac, Mac};
use sha2::Sha256;

const RECEIVE_LIMIT: usize = 2048;
const SRC_LIMIT: usize = 128;
const CHAN_LIMIT: usize = 1024;
const LENGTH_DIGITS: usize = 5;
const SEQ_DIGITS: usize = 19; // what always fits into 64 bits; longer ones go the plain way
const SUM_DIGITS: usize = 16;
const SUM: usize = SUM_DIGITS / 2;
const HEX: &[u8; 16] = b"0123456789abcdef";

/// Where the fields of a datagram lie in the memory.
struct Fields {
    sum: Option<[u8; SUM]>,
    body: usize,
    src: Range<usize>,
    seq: u64,
    chan: Range<usize>,
}

/// Consecutive datagrams of one source, numbered without a gap, on one channel. Their MSG packets begin and end at
/// `starts` and `ends`; `at` is the index of the first.
pub struct Run {
    pub at: usize,
    pub src: Range<usize>,
    pub seq: u64,
    pub chan: Range<usize>,
    pub starts: Vec<usize>,
    pub ends: Vec<usize>,
}

pub enum Opened {
    Run(Run),
    Other(usize),
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn literal(&mut self, text: &[u8]) -> Option<()> {
        self.bytes[self.at..].starts_with(text).then(|| self.at += text.len())
    }

    fn number(&mut self, digits: usize) -> Option<u64> {
        let rest = &self.bytes[self.at..];
        let count = rest.iter().take(digits).take_while(|byte| byte.is_ascii_digit()).count();
        let number = rest[..count].iter().fold(0, |number: u64, digit| number * 10 + u64::from(digit - b'0'));
        self.at += count;
        (count > 0).then_some(number)
    }

    /// One to `limit` bytes that may stand in a src or chan.
    fn token(&mut self, limit: usize) -> Option<Range<usize>> {
        let rest = &self.bytes[self.at..];
        let count = rest.iter().take(limit).take_while(|byte| in_token(**byte)).count();
        let begin = self.at;
        self.at += count;
        (count > 0).then_some(begin..self.at)
    }

    fn sum(&mut self) -> Option<[u8; SUM]> {
        let digits = self.bytes.get(self.at..self.at + SUM_DIGITS)?;
        let mut sum = [0; SUM];
        for (byte, pair) in sum.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = hex(pair[0])? << 4 | hex(pair[1])?;
        }
        self.at += SUM_DIGITS;
        Some(sum)
    }
}

fn in_token(byte: u8) -> bool {
    !matches!(byte, 0 | b'\t'..=b'\r' | b' ' | b'|' | b':' | 0x80..)
}

fn hex(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

/// A datagram that breaks no rule, signed or without any integrity value. None is no verdict.
fn parse(datagram: &[u8]) -> Option<Fields> {
    if datagram.len() > RECEIVE_LIMIT {
        return None;
    }
    let mut reader = Reader { bytes: datagram, at: 0 };
    reader.literal(b"BCCN1[")?;
    let length = reader.number(LENGTH_DIGITS)?;
    let sum = match reader.literal(b":hmac=") {
        Some(()) => Some(reader.sum()?),
        None => None,
    };
    reader.literal(b"]")?;
    let body = reader.at;
    if length != (datagram.len() - body) as u64 {
        return None;
    }
    let src = reader.token(SRC_LIMIT)?;
    reader.literal(b":")?;
    let seq = reader.number(SEQ_DIGITS)?;
    reader.literal(b":")?;
    let chan = reader.token(CHAN_LIMIT)?;
    reader.literal(b"|")?;
    (!datagram[chan.clone()].starts_with(b"!?")).then_some(Fields { sum, body, src, seq, chan })
}

/// What a datagram says of itself, whether or not its length, its sum and all else are right.
pub struct Header<'a> {
    pub mode: &'a [u8],
    pub src: &'a [u8],
    pub seq: u64,
    pub chan: &'a [u8],
    pub payload: &'a [u8],
}

pub fn header(datagram: &[u8]) -> Option<Header<'_>> {
    let mut reader = Reader { bytes: datagram, at: 0 };
    reader.literal(b"BCCN1[")?;
    reader.number(LENGTH_DIGITS)?;
    let mut mode: &[u8] = b"";
    for algorithm in [&b":hmac="[..], b":crc32="] {
        if mode.is_empty() && reader.literal(algorithm).is_some() {
            mode = &algorithm[1..algorithm.len() - 1];
            let digits = datagram[reader.at..].iter().take(SUM_DIGITS).take_while(|digit| hex(**digit).is_some()).count();
            reader.at += digits;
            (digits > 0).then_some(())?;
        }
    }
    reader.literal(b"]")?;
    let src = reader.token(SRC_LIMIT)?;
    reader.literal(b":")?;
    let digits = datagram[reader.at..].iter().take(20).take_while(|digit| digit.is_ascii_digit()).count();
    let seq = std::str::from_utf8(&datagram[reader.at..reader.at + digits]).ok()?.parse().ok()?;
    reader.at += digits;
    reader.literal(b":")?;
    let chan = reader.token(CHAN_LIMIT)?;
    reader.literal(b"|")?;
    Some(Header { mode, src: &datagram[src], seq, chan: &datagram[chan], payload: &datagram[reader.at..] })
}

fn is_signed(body: &[u8], sum: &[u8; SUM], macs: &[Hmac<Sha256>]) -> bool {
    macs.iter().any(|mac| {
        let mut mac = mac.clone();
        mac.update(body);
        mac.verify_truncated_left(sum).is_ok() // in constant time
    })
}

/// Lay the datagrams out in `region` as the packets of a PACK: a length before each `MSG <chan> NUL <payload>`.
pub fn open_batch(
    memory: &mut [u8],
    starts: &[usize],
    ends: &[usize],
    region: (usize, usize),
    macs: &[Hmac<Sha256>],
    required: bool,
) -> Vec<Opened> {
    let (mut free, limit) = region;
    let mut opened: Vec<Opened> = Vec::new();
    for (at, (&start, &end)) in starts.iter().zip(ends).enumerate() {
        let datagram = &memory[start..end];
        let sound = parse(datagram).filter(|fields| match &fields.sum {
            Some(sum) => macs.is_empty() || is_signed(&datagram[fields.body..], sum, macs),
            None => !required,
        });
        let Some(fields) = sound else {
            opened.push(Opened::Other(at));
            continue;
        };
        let chan = start + fields.chan.start..start + fields.chan.end;
        let src = start + fields.src.start..start + fields.src.end;
        let first = free + 4;
        let after = first + 4 + (end - chan.start);
        if after > limit {
            opened.push(Opened::Other(at));
            continue;
        }
        memory[free..first].copy_from_slice(&((after - first) as u32).to_be_bytes());
        memory[first..first + 4].copy_from_slice(b"MSG ");
        memory.copy_within(chan.start..end, first + 4);
        memory[first + 4 + chan.len()] = 0;
        free = after;
        if let Some(Opened::Run(run)) = opened.last_mut() {
            if run.seq + run.starts.len() as u64 == fields.seq
                && memory[run.chan.clone()] == memory[chan.clone()]
                && memory[run.src.clone()] == memory[src.clone()]
            {
                run.starts.push(first);
                run.ends.push(after);
                continue;
            }
        }
        opened.push(Opened::Run(Run { at, src, seq: fields.seq, chan, starts: vec![first], ends: vec![after] }));
    }
    opened
}

/// Makes the datagrams of one source, one after the other.
pub struct Sealer<'a> {
    src: &'a [u8],
    mac: Option<&'a Hmac<Sha256>>,
    body: Vec<u8>,
}

impl<'a> Sealer<'a> {
    pub fn new(src: &'a [u8], mac: Option<&'a Hmac<Sha256>>) -> Self {
        Sealer { src, mac, body: Vec::new() }
    }

    /// Append the datagram of `message`, which is `<chan> NUL <payload>`, to `out`. Says no when it does not fit.
    pub fn seal(&mut self, seq: u64, message: &[u8], out: &mut impl Write) -> std::io::Result<()> {
        self.body.clear();
        self.body.extend_from_slice(self.src);
        write!(self.body, ":{seq}:")?;
        let chan = self.body.len();
        self.body.extend_from_slice(message);
        if let Some(nul) = message.iter().position(|byte| *byte == 0) {
            self.body[chan + nul] = b'|';
        }
        write!(out, "BCCN1[{}", self.body.len())?;
        if let Some(mac) = self.mac {
            let mut mac = mac.clone();
            mac.update(&self.body);
            let mut digits = [0; SUM_DIGITS];
            for (pair, byte) in digits.chunks_exact_mut(2).zip(mac.finalize().into_bytes()) {
                pair[0] = HEX[usize::from(byte >> 4)];
                pair[1] = HEX[usize::from(byte & 15)];
            }
            out.write_all(b":hmac=")?;
            out.write_all(&digits)?;
        }
        out.write_all(b"]")?;
        out.write_all(&self.body)
    }
}
