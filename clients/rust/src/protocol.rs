//! The packets of the local socket (clients/PROTOCOL.md, "Packets"; clients/vectors/sbus.json).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::{Error, Result};

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
pub struct Message {
    /// The channel; `!` and `!<target>` are to all and to this program.
    pub channel: String,
    /// The payload, which is any bytes.
    pub payload: Vec<u8>,
    /// How many messages the daemon dropped directly before this one, because this program read too slowly.
    pub lost: u64,
    /// Where the message came from; only with [`Options::full`](crate::Options::full).
    pub origin: Option<Origin>,
}

/// Where a message came from, as the format `full` shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
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
    /// The whole BCCN1 datagram.
    pub datagram: Vec<u8>,
}

impl Message {
    /// Returns the payload as text. Bytes that are not UTF-8 are replaced.
    pub fn text(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(&self.payload)
    }

    /// About how many bytes of memory the message takes.
    pub(crate) fn size(&self) -> usize {
        let datagram = self.origin.as_ref().map_or(0, |origin| origin.datagram.len());
        MESSAGE_COST + self.payload.len() + datagram
    }

    /// Returns whether the message is the last value of its channel, from before the subscription. It needs
    /// [`Options::full`](crate::Options::full).
    pub fn retained(&self) -> bool {
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
    let alien = || Error::Protocol(format!("the daemon sent {:?}", text(&packet[..packet.len().min(32)])));
    let (kind, rest) = cut(packet, b' ').ok_or_else(alien)?;
    let (head, tail) = cut(rest, 0).ok_or_else(alien)?;
    match kind {
        b"MSG" => Ok(Packet::Message(Message { channel: text(head), payload: tail.to_vec(), lost: 0, origin: None })),
        b"CMSG" => Ok(Packet::Control(text(head), text(tail))),
        b"RECV" => parse_full(&text(head), tail).map(Packet::Message).ok_or_else(alien),
        _ => Err(alien()),
    }
}

/// Reads `<peer> <unix_ns> <verdict>` and a datagram.
fn parse_full(head: &str, datagram: &[u8]) -> Option<Message> {
    let [peer, time, verdict] = head.split(' ').collect::<Vec<_>>()[..] else { return None };
    if time.is_empty() || time.len() > TIME_DIGITS || !time.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let time = UNIX_EPOCH + Duration::from_nanos(time.parse().unwrap_or(u64::MAX));
    // Only a tap gets bytes that are not BCCN1: those have no fields.
    let (src, seq, channel, payload) = fields(datagram).unwrap_or_default();
    let origin = Origin { src, seq, peer: peer.into(), time, verdict: verdict.into(), datagram: datagram.to_vec() };
    Some(Message { channel, payload, lost: 0, origin: Some(origin) })
}

fn fields(datagram: &[u8]) -> Option<(String, u64, String, Vec<u8>)> {
    let (_, body) = cut(datagram, b']')?;
    let (header, payload) = cut(body, b'|')?;
    let header = text(header);
    let [src, seq, channel] = header.split(':').collect::<Vec<_>>()[..] else { return None };
    Some((src.into(), seq.parse().ok()?, channel.into(), payload.to_vec()))
}

/// The packets inside a PACK.
pub(crate) fn unpack(packet: &[u8]) -> Result<Vec<&[u8]>> {
    let alien = || Error::Protocol("the daemon sent a PACK whose lengths reach beyond it".into());
    let mut inside = Vec::new();
    let mut rest = &packet[PACK.len()..];
    while !rest.is_empty() {
        let length = rest.get(..LENGTH_SIZE).ok_or_else(alien)?.try_into().expect("of that size");
        let end = LENGTH_SIZE + u32::from_be_bytes(length) as usize;
        inside.push(rest.get(LENGTH_SIZE..end).ok_or_else(alien)?);
        rest = &rest[end..];
    }
    Ok(inside)
}

/// Appends a MSG packet for the channel of this sign and name. It refuses only a NUL in the channel, which would end
/// the channel early; the daemon checks the rest.
pub(crate) fn append_msg(out: &mut Vec<u8>, sign: &str, channel: &str, head: &[u8], payload: &[u8]) -> Result<()> {
    if channel.contains('\0') {
        return Err(Error::Invalid(format!("channel {channel:?}: must not contain NUL")));
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
        return Err(Error::Invalid(format!("pattern {pattern:?}: must be ASCII without white space")));
    }
    Ok(format!("{word} {pattern}").into_bytes())
}

pub(crate) fn build_control(key: &str, value: &str) -> Result<Vec<u8>> {
    if key.is_empty() || key.bytes().any(is_white) {
        return Err(Error::Invalid(format!("control key {key:?}: must not be empty nor contain white space")));
    }
    Ok(format!("CMSG {key}\0{value}").into_bytes())
}

/// Returns whether a subscription to `pattern` brings messages of `channel`. The `separator` is `/` or `.`. The daemon
/// delivers one copy of a message and does not say which patterns match.
pub fn matches(pattern: &str, channel: &str, separator: char) -> bool {
    if channel.starts_with('!') {
        return false;
    }
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
