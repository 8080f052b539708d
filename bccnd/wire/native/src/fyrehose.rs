//! The backbone (`fyrehose.py`): a PUSH becomes the DELIVER of its data where it lies.

const DELIVER: u8 = 0x01;
const PUSH: u8 = 0x02;
const HEAD: usize = 9;
const PACKET_LIMIT: usize = 65_507;
const SEQ_LIMIT: u64 = 1 << 48;

/// Whether this packet was a sound PUSH, and has this number now.
pub fn number(packet: &mut [u8], seq: u64) -> bool {
    let size = packet.len();
    if !(HEAD..=PACKET_LIMIT).contains(&size) || packet[0] != PUSH || seq >= SEQ_LIMIT {
        return false;
    }
    let length = usize::from(u16::from_be_bytes([packet[1], packet[2]]));
    if length != size - HEAD && length != size {
        return false;
    }
    packet[0] = DELIVER;
    packet[1..3].copy_from_slice(&((size - HEAD) as u16).to_be_bytes());
    packet[3..HEAD].copy_from_slice(&seq.to_be_bytes()[2..]);
    true
}
