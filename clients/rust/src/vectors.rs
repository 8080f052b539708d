//! Tests with the golden vectors, which clients/vectors/README.md describes.

use std::time::{Duration, UNIX_EPOCH};

use serde_json::Value;

use crate::protocol::{append_msg, build_control, build_sub, parse, unpack, Message, Packet, PACK};
use crate::{matches, Code, Error, Result, Separator};

/// The entries of a list with these types (none: all entries). Prints how many there are.
fn vectors(file: &str, list: &str, types: &[&str]) -> Vec<Value> {
    let path = format!("{}/../vectors/{file}.json", env!("CARGO_MANIFEST_DIR"));
    let data = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let file: Value = serde_json::from_str(&data).expect("JSON");
    let mut found = file[list].as_array().expect("a list").clone();
    found.retain(|vector| types.is_empty() || types.contains(&text(vector, "type")));
    assert!(!found.is_empty(), "{path}: nothing under {list}");
    println!("{} vectors", found.len());
    found
}

fn text<'a>(vector: &'a Value, key: &str) -> &'a str {
    vector[key].as_str().unwrap_or_else(|| panic!("no {key} in {vector}"))
}

fn unhex(digits: &str) -> Vec<u8> {
    let pairs = digits.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).expect("ASCII"));
    pairs.map(|pair| u8::from_str_radix(pair, 16).expect("hex")).collect()
}

fn bytes(vector: &Value, key: &str) -> Vec<u8> {
    unhex(text(vector, key))
}

fn canonical(vector: &Value) -> bool {
    vector["canonical"].as_bool().expect("canonical")
}

fn message(packet: &[u8]) -> Message {
    match parse(packet) {
        Ok(Packet::Message(message)) => message,
        other => panic!("{other:?}"),
    }
}

/// Reads a packet as a client does, and the packets in it.
fn read(packet: &[u8]) -> Result<()> {
    if packet.starts_with(PACK) {
        return unpack(packet).try_for_each(|part| parse(part?).map(drop));
    }
    parse(packet).map(drop)
}

fn is_protocol(error: Error) -> bool {
    *error.code() == Code::Protocol
}

#[test]
fn patterns_match_as_in_the_daemon() {
    for vector in vectors("patterns", "matches", &[]) {
        let separator = if text(&vector, "separator") == "." { Separator::Dot } else { Separator::Slash };
        let found = matches(text(&vector, "pattern"), text(&vector, "channel"), separator);
        assert_eq!(Some(found), vector["matches"].as_bool(), "{vector}");
    }
}

#[test]
fn messages_are_read_and_written() {
    for vector in vectors("sbus", "valid", &["MSG"]) {
        let packet = bytes(&vector, "packet");
        let message = message(&packet);
        assert_eq!((message.channel.as_str(), &message.payload), (text(&vector, "chan"), &bytes(&vector, "payload")));
        let mut written = Vec::new();
        append_msg(&mut written, "", &message.channel, b"", &message.payload).expect("sound");
        assert!(!canonical(&vector) || written == packet, "{vector}");
    }
}

#[test]
fn subscriptions_are_written() {
    for vector in vectors("sbus", "valid", &["SUB", "UNSUB"]) {
        let written = build_sub(text(&vector, "type"), text(&vector, "pattern")).expect("sound");
        assert!(!canonical(&vector) || written == bytes(&vector, "packet"), "{vector}");
    }
}

#[test]
fn control_is_read_and_written() {
    // The daemon writes only canonical packets.
    for vector in vectors("sbus", "valid", &["CMSG"]).iter().filter(|vector| canonical(vector)) {
        let (packet, value) = (bytes(vector, "packet"), bytes(vector, "value"));
        let value = String::from_utf8_lossy(&value);
        assert_eq!(parse(&packet), Ok(Packet::Control(text(vector, "key").into(), value.clone().into_owned())));
        assert_eq!(build_control(text(vector, "key"), &value), Ok(packet));
    }
}

#[test]
fn full_messages_are_read() {
    for vector in vectors("sbus", "valid", &["RECV"]) {
        let origin = message(&bytes(&vector, "packet")).origin.expect("of the format full");
        assert_eq!((origin.peer.as_str(), origin.verdict.as_str()), (text(&vector, "peer"), text(&vector, "verdict")));
        assert_eq!(origin.datagram, bytes(&vector, "datagram"));
        assert_eq!(origin.interface.as_deref(), vector["interface"].as_str());
        if let Ok(time) = text(&vector, "unix_ns").parse() {
            assert_eq!(origin.time, UNIX_EPOCH + Duration::from_nanos(time));
        }
    }
}

#[test]
fn every_sound_datagram_is_read() {
    for vector in vectors("bccn1", "valid", &[]) {
        let packet = [b"RECV 10.0.0.1:5400 17 ok\0".as_slice(), &bytes(&vector, "datagram")].concat();
        let message = message(&packet);
        let origin = message.origin.expect("of the format full");
        assert_eq!(
            (origin.src.as_str(), origin.seq.to_string().as_str()),
            (text(&vector, "src"), text(&vector, "seq"))
        );
        assert_eq!((message.channel.as_str(), message.payload), (text(&vector, "chan"), bytes(&vector, "payload")));
    }
}

#[test]
fn packs_are_taken_apart() {
    for vector in vectors("sbus", "valid", &["PACK"]) {
        let packets = vector["packets"].as_array().expect("a list").iter();
        let packets: Vec<_> = packets.map(|packet| unhex(packet.as_str().expect("hex"))).collect();
        let packet = bytes(&vector, "packet");
        assert_eq!(unpack(&packet).collect::<Result<Vec<_>>>().expect("sound"), packets);
    }
}

#[test]
fn broken_packets_are_a_protocol_error() {
    let of_the_daemon = |vector: &&Value| ["RECV:", "PACK:"].iter().any(|word| text(vector, "name").starts_with(word));
    for vector in vectors("sbus", "invalid", &[]).iter().filter(of_the_daemon) {
        assert!(read(&bytes(vector, "packet")).is_err_and(is_protocol), "{vector}");
    }
}

#[test]
fn damaged_packets_are_read_or_a_protocol_error() {
    let check = |packet: &[u8]| assert!(read(packet).map_or_else(is_protocol, |()| true), "{packet:?}");
    for vector in vectors("sbus", "valid", &[]) {
        let packet = bytes(&vector, "packet");
        for index in 0..packet.len().min(200) {
            check(&packet[..index]);
            for byte in [0, b' ', b'0', b':', b'|', b']', 0xff] {
                let mut damaged = packet.clone();
                damaged[index] = byte;
                check(&damaged);
            }
        }
    }
}
