//! BCCN1 (`bccn1.py`): `BCCN1[<len>[:<algo>=<sum>]]<src>:<seq>:<chan>|<payload>`.

use std::io::Write;
use std::ops::Range;

use hmac::{Hmac, Mac};
use sha2::Sha256;

const RECEIVE_LIMIT: usize = 2048;
const SRC_LIMIT: usize = 128;
const CHAN_LIMIT: usize = 1024;
const LENGTH_DIGITS: usize = 5;
const SEQ_DIGITS: usize = 20;
const SUM_DIGITS: usize = 16;
const SUM: usize = SUM_DIGITS / 2;
const HEX: &[u8; 16] = b"0123456789abcdef";

/// What stands before the payload of a datagram, without a fault of its own; its length and its sum may be wrong all
/// the same. Ranges of the datagram, empty where there is no such part.
#[derive(Default)]
pub struct Header {
    length: u64,
    pub algorithm: Range<usize>,
    sum: Range<usize>,
    body: usize,
    pub src: Range<usize>,
    pub seq: u64,
    pub chan: Range<usize>,
    pub payload: usize,
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

    /// One to `limit` bytes of a kind.
    fn some(&mut self, limit: usize, kind: impl Fn(u8) -> bool) -> Option<Range<usize>> {
        let begin = self.at;
        self.at += self.bytes[begin..].iter().take(limit).take_while(|byte| kind(**byte)).count();
        (self.at > begin).then_some(begin..self.at)
    }

    /// A number of up to so many digits; None as well for one that does not fit into 64 bits.
    fn number(&mut self, digits: usize) -> Option<u64> {
        let found = self.some(digits, |byte| byte.is_ascii_digit())?;
        self.bytes[found].iter().try_fold(0u64, |number, digit| {
            number.checked_mul(10)?.checked_add(u64::from(digit - b'0'))
        })
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

/// `bccn1.HEADER`.
pub fn header(datagram: &[u8]) -> Option<Header> {
    let mut reader = Reader { bytes: datagram, at: 0 };
    reader.literal(b"BCCN1[")?;
    let length = reader.number(LENGTH_DIGITS)?;
    let (mut algorithm, mut sum) = (0..0, 0..0);
    if reader.literal(b":").is_some() {
        let begin = reader.at;
        reader.literal(b"hmac").or_else(|| reader.literal(b"crc32"))?;
        algorithm = begin..reader.at;
        reader.literal(b"=")?;
        sum = reader.some(SUM_DIGITS, |byte| hex(byte).is_some())?;
    }
    reader.literal(b"]")?;
    let body = reader.at;
    let src = reader.some(SRC_LIMIT, in_token)?;
    reader.literal(b":")?;
    let seq = reader.number(SEQ_DIGITS)?;
    reader.literal(b":")?;
    let chan = reader.some(CHAN_LIMIT, in_token)?;
    reader.literal(b"|")?;
    Some(Header { length, algorithm, sum, body, src, seq, chan, payload: reader.at })
}

/// `Integrity.open_sound`: the header of a datagram that breaks no rule. None only says that Python has to look closer.
fn open_sound(datagram: &[u8], macs: &[Hmac<Sha256>], required: bool) -> Option<Header> {
    if datagram.len() > RECEIVE_LIMIT {
        return None;
    }
    let header = header(datagram)?;
    let body = &datagram[header.body..];
    if header.length != body.len() as u64 || datagram[header.chan.clone()].starts_with(b"!?") {
        return None;
    }
    let sound = match &datagram[header.algorithm.clone()] {
        b"" => !required,
        b"hmac" => is_signed(body, &datagram[header.sum.clone()], macs),
        _ => false,
    };
    sound.then_some(header)
}

/// Whether `digits` are the value that one of the keys gives; without any key, whether they could be.
fn is_signed(body: &[u8], digits: &[u8], macs: &[Hmac<Sha256>]) -> bool {
    let mut sum = [0; SUM];
    if digits.len() != SUM_DIGITS {
        return false;
    }
    for (byte, pair) in sum.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = hex(pair[0]).zip(hex(pair[1])).map_or(0, |(high, low)| high << 4 | low);
    }
    macs.is_empty()
        || macs.iter().any(|mac| {
            let mut mac = mac.clone();
            mac.update(body);
            mac.verify_truncated_left(&sum).is_ok() // in constant time
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
        let Some(header) = open_sound(datagram, macs, required) else {
            opened.push(Opened::Other(at));
            continue;
        };
        let chan = start + header.chan.start..start + header.chan.end;
        let src = start + header.src.start..start + header.src.end;
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
            if run.seq + run.starts.len() as u64 == header.seq
                && memory[run.chan.clone()] == memory[chan.clone()]
                && memory[run.src.clone()] == memory[src.clone()]
            {
                run.starts.push(first);
                run.ends.push(after);
                continue;
            }
        }
        opened.push(Opened::Run(Run { at, src, seq: header.seq, chan, starts: vec![first], ends: vec![after] }));
    }
    opened
}

/// The digits of a number, at the end of `digits`. With the standard formatter a datagram takes 400 instructions more.
fn decimal(mut number: u64, digits: &mut [u8; SEQ_DIGITS]) -> &[u8] {
    let mut first = SEQ_DIGITS;
    loop {
        first -= 1;
        digits[first] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return &digits[first..];
        }
    }
}

/// Makes the datagrams of one source, one after the other.
pub struct Sealer<'a> {
    mac: Option<&'a Hmac<Sha256>>,
    /// Of the last datagram. Its first `same` bytes, `<src>:`, are those of all.
    body: Vec<u8>,
    same: usize,
}

impl<'a> Sealer<'a> {
    pub fn new(src: &[u8], mac: Option<&'a Hmac<Sha256>>) -> Self {
        let body = [src, b":"].concat();
        Sealer { mac, same: body.len(), body }
    }

    /// Append the datagram of `message`, which is `<chan> NUL <payload>`, to `out`. Says no when it does not fit.
    pub fn seal(&mut self, seq: u64, message: &[u8], out: &mut impl Write) -> std::io::Result<()> {
        let mut digits = [0; SEQ_DIGITS];
        self.body.truncate(self.same);
        self.body.extend_from_slice(decimal(seq, &mut digits));
        self.body.push(b':');
        let chan = self.body.len();
        self.body.extend_from_slice(message);
        if let Some(nul) = message.iter().position(|byte| *byte == 0) {
            self.body[chan + nul] = b'|';
        }
        out.write_all(b"BCCN1[")?;
        out.write_all(decimal(self.body.len() as u64, &mut digits))?;
        if let Some(mac) = self.mac {
            let mut mac = mac.clone();
            mac.update(&self.body);
            let mut sum = *b":hmac=0123456789abcdef]";
            for (pair, byte) in sum[":hmac=".len()..].chunks_exact_mut(2).zip(mac.finalize().into_bytes()) {
                pair[0] = HEX[usize::from(byte >> 4)];
                pair[1] = HEX[usize::from(byte & 15)];
            }
            out.write_all(&sum)?;
        } else {
            out.write_all(b"]")?;
        }
        out.write_all(&self.body)
    }
}
