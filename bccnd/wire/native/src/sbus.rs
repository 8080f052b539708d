//! The local bus (`sbus.py`): `MSG <chan> NUL <payload>`, and PACK with a length before each packet.

const PACK: usize = "PACK ".len();
const LENGTH: usize = 4;

/// The places of the packets in the PACK at `memory[start..end]`; None when a length reaches beyond it.
pub fn unpack(memory: &[u8], start: usize, end: usize) -> Option<(Vec<usize>, Vec<usize>)> {
    let (mut starts, mut ends) = (Vec::new(), Vec::new());
    let mut at = start + PACK;
    while at < end {
        let first = at + LENGTH;
        let length = memory[..end].get(at..first)?;
        at = first + u32::from_be_bytes(length.try_into().ok()?) as usize;
        if at > end {
            return None;
        }
        starts.push(first);
        ends.push(at);
    }
    (at <= end).then_some((starts, ends))
}

/// `MSG <chan> NUL` of a packet that begins so.
pub fn head(packet: &[u8]) -> Option<&[u8]> {
    let nul = packet.strip_prefix(b"MSG ")?.iter().position(|byte| *byte == 0)?;
    Some(&packet[..4 + nul + 1])
}
