use std::fmt;

use crate::protocol::{append_msg, LENGTH_SIZE, PACK, PACK_LIMIT};
use crate::socket::generation;
use crate::{Client, Result};

/// See [`Client::batch`]. What is published by other ways meanwhile does not wait for the batch. Dropping a batch sends
/// the rest of it; only [`Batch::flush`] reports errors of that.
pub struct Batch<'a> {
    generation: u32, // of the process that gathers
    client: &'a Client,
    packet: Vec<u8>,
    messages: u64,
    limit: usize, // bytes; 0: packing is not agreed
}

impl<'a> Batch<'a> {
    pub(crate) fn new(client: &'a Client) -> Batch<'a> {
        Batch { generation: generation(), client, packet: PACK.to_vec(), messages: 0, limit: limit(client) }
    }

    /// Adds a message, and sends the packet when it is full. The errors are those of [`Client::publish`], about any
    /// message of the batch.
    pub fn publish(&mut self, channel: &str, payload: impl AsRef<[u8]>) -> Result<()> {
        self.forget_parents();
        let payload = payload.as_ref();
        let size = b"MSG \0".len() + channel.len() + payload.len();
        if self.messages > 0 && self.packet.len() + LENGTH_SIZE + size > self.limit {
            self.flush()?;
        }
        if PACK.len() + LENGTH_SIZE + size > self.limit {
            self.limit = limit(self.client); // a new connection may have agreed
            return self.client.publish(channel, payload);
        }
        let whole = self.packet.len();
        self.packet.extend_from_slice(&(size as u32).to_be_bytes());
        let result = append_msg(&mut self.packet, "", channel, b"", payload);
        match result {
            Ok(()) => self.messages += 1,
            Err(_) => self.packet.truncate(whole),
        }
        result
    }

    /// Hands the rest of the batch to the daemon, and empties it.
    pub fn flush(&mut self) -> Result<()> {
        self.forget_parents();
        let messages = std::mem::take(&mut self.messages);
        let result = match messages {
            0 => Ok(()),
            _ => self.client.run(self.client.shared.send_pack(&self.packet, messages)),
        };
        self.packet.truncate(PACK.len());
        self.limit = limit(self.client);
        result
    }

    /// A child of fork does not send what its parent has gathered.
    fn forget_parents(&mut self) {
        if self.generation != generation() {
            self.generation = generation();
            self.messages = 0;
            self.packet.truncate(PACK.len());
        }
    }
}

fn limit(client: &Client) -> usize {
    client.shared.peek().pack_limit.min(PACK_LIMIT)
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        let _ = self.flush();
    }
}

impl fmt::Debug for Batch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch").field("messages", &self.messages).finish_non_exhaustive()
    }
}
