//! The packets of the local socket (clients/PROTOCOL.md, "Packets"; clients/vectors/sbus.json).

use std::borrow::Cow;
use std::fmt;
use std::sync::Weak;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::shared::Shared;
use crate::{Error, Result, Separator};

pub(crate) const PACK: &[u8] = b"PACK ";
/// Bytes of a length in a PACK.
pub(crate) const LENGTH_SIZE: usize = 4;
/// The client sends no PACK longer than this, even if the daemon takes one.
pub(crate) const PACK_LIMIT: usize = 65536;
/// About so many bytes belong to a message besides its payload.
const MESSAGE_COST: usize = 256;
/// The decimal digits of a 64-bit number.
const TIME_DIGITS: usize = 20;

/// One message.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Message {
    /// The channel; `!` and `!<target>` are to all and to this program.
    pub channel: String,
    /// The payload, which is any bytes.
    pub payload: Vec<u8>,
    /// How many messages the daemon dropped directly before this one, because this program read too slowly.
    pub lost: u64,
    /// Where the message came from; only in [`Format::Full`](crate::Format::Full), or by a tap.
    pub origin: Option<Box<Origin>>,
    pub(crate) handle: Handle,
}

/// Where a message came from.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Origin {
    /// The source: `<host>/<program>/<pid>`, or `?` for a sender without a name.
    pub src: String,
    /// The number of the message within its source.
    pub seq: u64,
    /// The address: `ip:port`, or `local` for a sender on this host.
    pub peer: String,
    /// When the daemon received it.
    pub time: SystemTime,
    /// `ok` or `retained`; to a tap also why it was not delivered.
    pub verdict: String,
    /// The interface that it came by, `-` for one of this host; only with [`Tap::Interface`](crate::Tap::Interface).
    pub interface: Option<String>,
    /// The whole BCCN1 datagram.
    pub datagram: Vec<u8>,
}

/// The client that received a message; all of them are equal.
#[derive(Clone, Default)]
pub(crate) struct Handle(pub(crate) Weak<Shared>);

impl PartialEq for Handle {
    fn eq(&self, _: &Handle) -> bool {
        true
    }
}

impl Eq for Handle {}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("..")
    }
}

impl Message {
    pub(crate) fn new(channel: String, payload: Vec<u8>, origin: Option<Box<Origin>>) -> Message {
        Message { channel, payload, lost: 0, origin, handle: Handle::default() }
    }

    /// Returns the payload as text. Bytes that are not UTF-8 are replaced.
    pub fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.payload)
    }

    /// About how many bytes of memory the message takes.
    pub(crate) fn size(&self) -> usize {
        let datagram = self.origin.as_ref().map_or(0, |origin| origin.datagram.len());
        MESSAGE_COST + self.payload.len() + datagram
    }

    /// Whether a tap shows a datagram that was not delivered.
    pub(crate) fn is_rejected(&self) -> bool {
        let is_delivered = |verdict: &str| matches!(verdict, "ok" | "repaired" | "retained");
        self.origin.as_ref().is_some_and(|origin| !is_delivered(&origin.verdict))
    }

    /// Returns whether the message is the last value of its channel, from before the subscription. Only
    /// [`Format::Full`](crate::Format::Full) shows that.
    pub fn is_retained(&self) -> bool {
        self.origin.as_ref().is_some_and(|origin| origin.verdict == "retained")
    }
}

/// A packet from the daemon, other than a PACK.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Packet {
    Message(Message),
    Control(String, String),
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub(crate) fn cut(bytes: &[u8], at: u8) -> Option<(&[u8], &[u8])> {
    let index = bytes.iter().position(|&byte| byte == at)?;
    Some((&bytes[..index], &bytes[index + 1..]))
}

pub(crate) fn parse(packet: &[u8]) -> Result<Packet> {
    let alien = || Error::protocol(format!("the daemon sent {:?}", text(&packet[..packet.len().min(32)])));
    let (kind, rest) = cut(packet, b' ').ok_or_else(alien)?;
    let (head, tail) = cut(rest, 0).ok_or_else(alien)?;
    match kind {
        b"MSG" => Ok(Packet::Message(Message::new(text(head), tail.to_vec(), None))),
        b"CMSG" => Ok(Packet::Control(text(head), text(tail))),
        b"RECV" => parse_full(&String::from_utf8_lossy(head), tail).map(Packet::Message).ok_or_else(alien),
        _ => Err(alien()),
    }
}

/// Reads `<peer> <unix_ns> <verdict>[ <interface>]` and a datagram.
fn parse_full(head: &str, datagram: &[u8]) -> Option<Message> {
    let mut words = head.split(' ');
    let (peer, time, verdict, interface) = (words.next()?, words.next()?, words.next()?, words.next());
    let digits = (1..=TIME_DIGITS).contains(&time.len()) && time.bytes().all(|byte| byte.is_ascii_digit());
    if !digits || words.next().is_some() || interface == Some("") {
        return None;
    }
    let time = UNIX_EPOCH + Duration::from_nanos(time.parse().unwrap_or(u64::MAX));
    // Only a tap gets bytes that are not BCCN1: those have no fields.
    let (src, seq, channel, payload) = fields(datagram).unwrap_or_default();
    let (peer, verdict, interface) = (peer.into(), verdict.into(), interface.map(String::from));
    let origin = Origin { src, seq, peer, time, verdict, interface, datagram: datagram.to_vec() };
    Some(Message::new(channel, payload, Some(Box::new(origin))))
}

fn fields(datagram: &[u8]) -> Option<(String, u64, String, Vec<u8>)> {
    let (_, body) = cut(datagram, b']')?;
    let (header, payload) = cut(body, b'|')?;
    let header = String::from_utf8_lossy(header);
    let mut words = header.split(':');
    let (src, seq, channel) = (words.next()?, words.next()?, words.next()?);
    match words.next() {
        None => Some((src.into(), seq.parse().ok()?, channel.into(), payload.to_vec())),
        Some(_) => None,
    }
}

/// The packets inside a PACK, each after its length. A wrong length is the last item, an error.
pub(crate) struct Unpacked<'a>(&'a [u8]);

pub(crate) fn unpack(packet: &[u8]) -> Unpacked<'_> {
    Unpacked(&packet[PACK.len()..])
}

impl<'a> Iterator for Unpacked<'a> {
    type Item = Result<&'a [u8]>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = std::mem::take(&mut self.0);
        let length = match rest.get(..LENGTH_SIZE) {
            _ if rest.is_empty() => return None,
            Some(length) => u32::from_be_bytes(length.try_into().expect("of that size")) as usize,
            None => usize::MAX,
        };
        let Some(inside) = rest.get(LENGTH_SIZE..LENGTH_SIZE.saturating_add(length)) else {
            return Some(Err(Error::protocol("the daemon sent a PACK whose lengths reach beyond it")));
        };
        self.0 = &rest[LENGTH_SIZE + length..];
        Some(Ok(inside))
    }
}

/// Appends a MSG packet for the channel of this sign and name. It refuses only a NUL in the channel, which would end
/// the channel early; the daemon checks the rest.
pub(crate) fn append_msg(out: &mut Vec<u8>, sign: &str, channel: &str, head: &[u8], payload: &[u8]) -> Result<()> {
    if channel.contains('\0') {
        return Err(Error::invalid(format!("channel {channel:?}: must not contain NUL")));
    }
    for part in [b"MSG ", sign.as_bytes(), channel.as_bytes(), b"\0", head, payload] {
        out.extend_from_slice(part);
    }
    Ok(())
}

fn is_white(byte: u8) -> bool {
    b" \t\n\x0b\x0c\r\0".contains(&byte)
}

/// Builds a packet with the `word` SUB or UNSUB.
pub(crate) fn build_sub(word: &str, pattern: &str) -> Result<Vec<u8>> {
    if !pattern.is_ascii() || pattern.bytes().any(is_white) {
        return Err(Error::invalid(format!("pattern {pattern:?}: must be ASCII without white space")));
    }
    Ok(format!("{word} {pattern}").into_bytes())
}

pub(crate) fn build_control(key: &str, value: &str) -> Result<Vec<u8>> {
    if key.is_empty() || key.bytes().any(is_white) {
        return Err(Error::invalid(format!("control key {key:?}: must not be empty nor contain white space")));
    }
    Ok(format!("CMSG {key}\0{value}").into_bytes())
}

/// Refuses a packet that would be another than a datagram.
pub(crate) fn check_datagram(datagram: &[u8]) -> Result<()> {
    if !datagram.starts_with(b"BCCN1[") {
        return Err(Error::invalid("datagram: must begin with BCCN1["));
    }
    Ok(())
}

/// Returns whether a subscription to `pattern` brings messages of `channel`.
pub fn matches(pattern: &str, channel: &str, separator: Separator) -> bool {
    if channel.starts_with('!') {
        return false;
    }
    let separator = separator.as_char();
    let (mut pattern, mut channel) = (pattern, channel);
    while let Some((first, below)) = pattern.split_once(separator) {
        match channel.split_once(separator) {
            Some((token, rest)) if token_matches(first, token) => (pattern, channel) = (below, rest),
            _ => return false,
        }
    }
    match pattern {
        "" => true,
        ">" => !channel.is_empty(),
        _ => !channel.contains(separator) && token_matches(pattern, channel),
    }
}

fn token_matches(pattern: &str, token: &str) -> bool {
    match pattern.find('*') {
        None => pattern == token,
        Some(star) => star == pattern.len() - 1 && token.starts_with(&pattern[..star]), // a * elsewhere matches nothing
    }
}
