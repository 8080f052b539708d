use std::fmt;

#[cfg(feature = "tokio")]
use crate::protocol::unpack;
use crate::protocol::{append_msg, LENGTH_SIZE, PACK, PACK_LIMIT};
use crate::socket::generation;
#[cfg(feature = "tokio")]
use crate::AsyncClient;
use crate::{Client, Result};

/// The messages that a batch has gathered, as a PACK.
struct Gathered {
    generation: u32, // of the process that gathers
    packet: Vec<u8>,
    messages: u64,
    limit: usize, // bytes; 0: packing is not agreed
}

impl Gathered {
    fn new(client: &Client) -> Gathered {
        Gathered { generation: generation(), packet: PACK.to_vec(), messages: 0, limit: limit(client) }
    }

    #[inline]
    fn is_full_for(&self, size: usize) -> bool {
        self.messages > 0 && self.packet.len() + LENGTH_SIZE + size > self.limit
    }

    /// Whether a message of this size goes into a PACK at all. A new connection may have agreed to another one.
    #[inline]
    fn takes(&mut self, size: usize, client: &Client) -> bool {
        let takes = PACK.len() + LENGTH_SIZE + size <= self.limit;
        if !takes {
            self.limit = limit(client);
        }
        takes
    }

    #[inline]
    fn add(&mut self, size: usize, channel: &str, payload: &[u8]) -> Result<()> {
        let whole = self.packet.len();
        self.packet.extend_from_slice(&(size as u32).to_be_bytes());
        let result = append_msg(&mut self.packet, "", channel, b"", payload);
        match result {
            Ok(()) => self.messages += 1,
            Err(_) => self.packet.truncate(whole),
        }
        result
    }

    fn clear(&mut self) {
        self.messages = 0;
        self.packet.truncate(PACK.len());
    }

    /// A child of fork does not send what its parent has gathered.
    #[inline]
    fn forget_parents(&mut self) -> bool {
        let forked = self.generation != generation();
        if forked {
            self.generation = generation();
            self.clear();
        }
        forked
    }
}

fn limit(client: &Client) -> usize {
    client.shared.peek().pack_limit.min(PACK_LIMIT)
}

/// Bytes of the packet of a message.
fn packet_size(channel: &str, payload: &[u8]) -> usize {
    b"MSG \0".len() + channel.len() + payload.len()
}

impl fmt::Debug for Gathered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gathered").field("messages", &self.messages).finish_non_exhaustive()
    }
}

/// See [`Client::batch`]. What is published by other ways meanwhile does not wait for the batch. Dropping a batch sends
/// the rest of it; only [`Batch::flush`] reports errors of that.
#[derive(Debug)]
pub struct Batch<'a> {
    client: &'a Client,
    gathered: Gathered,
}

impl<'a> Batch<'a> {
    pub(crate) fn new(client: &'a Client) -> Batch<'a> {
        Batch { client, gathered: Gathered::new(client) }
    }

    /// Adds a message, and sends the packet when it is full. The errors are those of [`Client::publish`], about any
    /// message of the batch.
    pub fn publish(&mut self, channel: &str, payload: impl AsRef<[u8]>) -> Result<()> {
        self.gathered.forget_parents();
        let payload = payload.as_ref();
        let size = packet_size(channel, payload);
        if self.gathered.is_full_for(size) {
            self.flush()?;
        }
        match self.gathered.takes(size, self.client) {
            true => self.gathered.add(size, channel, payload),
            false => self.client.publish(channel, payload),
        }
    }

    /// Hands the rest of the batch to the daemon, and empties it.
    pub fn flush(&mut self) -> Result<()> {
        self.gathered.forget_parents();
        let result = match self.gathered.messages {
            0 => Ok(()),
            messages => self.client.run(self.client.shared.send_pack(&self.gathered.packet, messages)),
        };
        self.gathered.clear();
        self.gathered.limit = limit(self.client);
        result
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        let _ = self.flush();
    }
}

/// See [`AsyncClient::batch`]. What is published by other ways meanwhile does not wait for the batch.
///
/// A batch that is dropped without [`AsyncBatch::flush`] drops the messages that it has gathered. A call that is dropped
/// before its end leaves those in the batch that have not been sent, and the next flush sends them.
#[cfg(feature = "tokio")]
#[derive(Debug)]
#[must_use = "what is not flushed is not sent"]
pub struct AsyncBatch {
    client: AsyncClient,
    gathered: Gathered,
    sent: u64, // of the gathered messages, one by one
}

#[cfg(feature = "tokio")]
impl AsyncBatch {
    pub(crate) fn new(client: &AsyncClient) -> AsyncBatch {
        AsyncBatch { client: client.clone(), gathered: Gathered::new(&client.client), sent: 0 }
    }

    /// Adds a message, and sends the packet when it is full, like [`Batch::publish`].
    pub async fn publish(&mut self, channel: &str, payload: impl AsRef<[u8]>) -> Result<()> {
        self.forget_parents();
        let payload = payload.as_ref();
        let size = packet_size(channel, payload);
        if self.gathered.is_full_for(size) {
            self.flush().await?;
        }
        match self.gathered.takes(size, &self.client.client) {
            true => self.gathered.add(size, channel, payload),
            false => self.client.publish(channel, payload).await,
        }
    }

    /// Hands the rest of the batch to the daemon, and empties it, also after an error.
    pub async fn flush(&mut self) -> Result<()> {
        self.forget_parents();
        let result = self.send().await;
        self.client.client.shared.tell();
        self.gathered.clear();
        self.sent = 0;
        self.gathered.limit = limit(&self.client.client);
        result
    }

    fn forget_parents(&mut self) {
        if self.gathered.forget_parents() {
            self.sent = 0;
        }
    }

    async fn send(&mut self) -> Result<()> {
        let shared = &self.client.client.shared;
        let messages = self.gathered.messages;
        if messages > 1 && self.sent == 0 && self.gathered.packet.len() <= shared.lock()?.pack_limit {
            return shared.send_messages(&self.gathered.packet, messages).await;
        }
        for packet in unpack(&self.gathered.packet).skip(self.sent as usize) {
            shared.send_messages(packet?, 1).await?;
            self.sent += 1;
        }
        Ok(())
    }
}
