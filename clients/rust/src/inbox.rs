//! What has been received and not yet taken. The daemon sends one copy of a message, so the client finds out by the
//! patterns where it goes: once to each callback and to each stream of a subscription that match, and once to the
//! stream of the client.
//!
//! Rules:
//! 1. A message that came behind another has a higher serial number, in whatever queue they wait.
//! 2. A subscription that the daemon has not agreed to yet gets messages, and is not held.
//! 3. Nothing of the program is dropped here: what a callback holds may call the client, which is locked.

use std::collections::VecDeque;
use std::mem::take;
use std::sync::{Arc, Mutex};

use crate::protocol::{matches, Message};
use crate::{Client, Separator};

/// The pattern of those who listen: no SUB has it, and no other pattern matches a channel that begins with it.
pub(crate) const LISTENER: &str = "!";

/// A function of the program. One thread at a time calls it.
pub(crate) type Callback = Arc<Mutex<dyn FnMut(&Client, Message) + Send>>;

/// Where messages of a subscription go.
pub(crate) enum Target {
    Stream,
    Own(VecDeque<Item>),
    Callback(Callback),
    Nobody, // it has ended, and its last messages are under way
}

pub(crate) struct Held {
    pub(crate) id: u64,
    pub(crate) pattern: String,
    pub(crate) held: bool, // the daemon has agreed
    pub(crate) target: Target,
}

pub(crate) struct Item {
    serial: u64,
    message: Message,
}

/// One of the ways that a message goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Stream,
    Subscription(usize),
}

/// Whose messages: those of the client, or of a subscription with a stream of its own.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    Client,
    Own(u64),
}

#[derive(Default)]
pub(crate) struct Inbox {
    pub(crate) subscriptions: Vec<Held>,
    listener: u64, // the id of what the last listen made; 0: none
    stream: VecDeque<Item>,
    calls: VecDeque<(Item, Callback, u64)>, // with the id of the subscription
    routed: bool,                           // there are other ways than to the stream
    bytes: usize,                           // in all queues
    ways: Vec<Way>,                         // empty; it keeps its memory
    serial: u64,
    ids: u64,
}

impl Inbox {
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// The serial number of the next message.
    pub(crate) fn next_serial(&self) -> u64 {
        self.serial
    }

    // --- subscriptions ---

    /// Adds a subscription that the daemon has not agreed to yet.
    pub(crate) fn add(&mut self, pattern: &str, callback: Option<Callback>) -> u64 {
        self.ids += 1;
        let target = callback.map_or(Target::Stream, Target::Callback);
        self.subscriptions.push(Held { id: self.ids, pattern: pattern.into(), held: false, target });
        self.reroute();
        self.ids
    }

    pub(crate) fn get(&mut self, id: u64) -> Option<&mut Held> {
        self.subscriptions.iter_mut().find(|each| each.id == id)
    }

    /// Ends a subscription: nothing that waits for it alone is given to the program. Its callback, for the caller to
    /// drop when the client is not locked.
    pub(crate) fn end(&mut self, id: u64) -> Vec<Callback> {
        let Some(held) = self.get(id) else { return Vec::new() };
        held.held = false;
        let mut callbacks = Vec::new();
        match std::mem::replace(&mut held.target, Target::Nobody) {
            Target::Own(queue) => self.bytes -= size(&queue),
            Target::Callback(callback) => callbacks.push(callback),
            _ => {}
        }
        for (item, callback, of) in take(&mut self.calls) {
            if of == id {
                self.bytes -= item.message.size();
                callbacks.push(callback);
            } else {
                self.calls.push_back((item, callback, of));
            }
        }
        self.reroute();
        callbacks
    }

    /// Forgets a subscription that has ended.
    pub(crate) fn remove(&mut self, id: u64) {
        self.subscriptions.retain(|each| each.id != id);
        self.reroute();
    }

    /// Listens, in place of an earlier call. What waits for the callback of that one still goes there.
    pub(crate) fn listen(&mut self, callback: Option<Callback>) -> Option<Callback> {
        let target = callback.map_or(Target::Stream, Target::Callback);
        let known = self.listener;
        let old = match self.get(known) {
            Some(held) => std::mem::replace(&mut held.target, target),
            None => {
                self.ids += 1;
                self.listener = self.ids;
                self.subscriptions.push(Held { id: self.ids, pattern: LISTENER.into(), held: true, target });
                Target::Nobody
            }
        };
        self.reroute();
        match old {
            Target::Callback(callback) => Some(callback),
            _ => None,
        }
    }

    /// Whether the daemon has agreed to a listener.
    pub(crate) fn listens(&self) -> bool {
        self.subscriptions.iter().any(|each| each.held && each.pattern == LISTENER)
    }

    fn reroute(&mut self) {
        self.routed = self.subscriptions.iter().any(|each| !matches!(each.target, Target::Stream));
    }

    /// The patterns that the daemon has agreed to, as often as they are held.
    pub(crate) fn patterns(&self) -> impl Iterator<Item = &str> {
        let agreed = self.subscriptions.iter().filter(|each| each.held && each.pattern != LISTENER);
        agreed.map(|each| each.pattern.as_str())
    }

    /// Makes a subscription a stream of its own: what waits for it moves over, and is copied if it is for others, too.
    pub(crate) fn open_own(&mut self, id: u64, separator: Separator) {
        let Some(held) = self.get(id).filter(|held| matches!(held.target, Target::Stream)) else { return };
        let pattern = held.pattern.clone();
        let mut own = VecDeque::new();
        for Item { serial, message } in take(&mut self.stream) {
            let channel = &message.channel;
            let is_for =
                |each: &&Held| matches!(each.target, Target::Stream) && wants(&each.pattern, channel, separator);
            if message.is_rejected() || !wants(&pattern, channel, separator) {
                self.stream.push_back(Item { serial, message });
            } else if self.subscriptions.iter().filter(|each| each.id != id).any(|each| is_for(&each)) {
                self.bytes += message.size();
                own.push_back(Item { serial, message: message.clone() });
                self.stream.push_back(Item { serial, message });
            } else {
                own.push_back(Item { serial, message });
            }
        }
        self.get(id).expect("found above").target = Target::Own(own);
        self.reroute();
    }

    /// Gives the messages of a stream that nobody can receive any more back to the stream of the client.
    pub(crate) fn close_own(&mut self, id: u64) {
        let Some(held) = self.get(id).filter(|held| matches!(held.target, Target::Own(_))) else { return };
        if let Target::Own(own) = std::mem::replace(&mut held.target, Target::Stream) {
            let mut all: Vec<_> = take(&mut self.stream).into_iter().chain(own).collect();
            all.sort_by_key(|item| item.serial);
            let before = all.iter().map(|item| item.message.size()).sum::<usize>();
            all.dedup_by_key(|item| item.serial);
            self.bytes = self.bytes - before + all.iter().map(|item| item.message.size()).sum::<usize>();
            self.stream = all.into();
        }
        self.reroute();
    }

    // --- messages ---

    pub(crate) fn put(&mut self, message: Message, separator: Separator) {
        let serial = self.serial;
        self.serial += 1;
        if !self.routed || message.is_rejected() {
            self.bytes += message.size();
            self.stream.push_back(Item { serial, message });
            return;
        }
        let mut ways = take(&mut self.ways);
        let mut ended = false;
        for (index, each) in self.subscriptions.iter().enumerate() {
            if wants(&each.pattern, &message.channel, separator) {
                match each.target {
                    Target::Stream if ways.first() == Some(&Way::Stream) => {}
                    Target::Stream => ways.insert(0, Way::Stream),
                    Target::Own(_) | Target::Callback(_) => ways.push(Way::Subscription(index)),
                    Target::Nobody => ended = true,
                }
            }
        }
        if ways.is_empty() && !ended {
            ways.push(Way::Stream);
        }
        let mut rest = Some(message);
        while let Some(way) = ways.pop() {
            let message = if ways.is_empty() { rest.take() } else { rest.clone() }.expect("taken for the last way");
            self.bytes += message.size();
            self.go(way, Item { serial, message });
        }
        self.ways = ways;
    }

    fn go(&mut self, way: Way, item: Item) {
        match way {
            Way::Stream => self.stream.push_back(item),
            Way::Subscription(index) => {
                let Held { id, target, .. } = &mut self.subscriptions[index];
                match target {
                    Target::Own(own) => own.push_back(item),
                    Target::Callback(callback) => self.calls.push_back((item, callback.clone(), *id)),
                    Target::Stream | Target::Nobody => {}
                }
            }
        }
    }

    fn queue(&mut self, source: Source) -> Option<&mut VecDeque<Item>> {
        match source {
            Source::Client => Some(&mut self.stream),
            Source::Own(id) => match &mut self.get(id)?.target {
                Target::Own(own) => Some(own),
                _ => None,
            },
        }
    }

    /// The next message of a stream.
    pub(crate) fn take(&mut self, source: Source) -> Option<Message> {
        let Item { message, .. } = self.queue(source)?.pop_front()?;
        self.bytes -= message.size();
        Some(message)
    }

    /// The next call of a callback, unless a message of the stream came before it.
    pub(crate) fn take_call(&mut self, source: Source) -> Option<(Message, Callback)> {
        let serial = self.calls.front()?.0.serial;
        if self.queue(source).and_then(|queue| queue.front()).is_some_and(|item| item.serial < serial) {
            return None;
        }
        let (Item { message, .. }, callback, _) = self.calls.pop_front()?;
        self.bytes -= message.size();
        Some((message, callback))
    }

    pub(crate) fn has_calls(&self) -> bool {
        !self.calls.is_empty()
    }

    /// Drops messages that came since `serial` and that are `unwanted`. How many were lost before the next message.
    pub(crate) fn drop_since(&mut self, serial: u64, unwanted: impl Fn(&[Held], &Message) -> bool) -> u64 {
        let mut lost = 0;
        let old = self.stream.partition_point(|item| item.serial < serial);
        for mut item in self.stream.split_off(old) {
            lost += take(&mut item.message.lost);
            if unwanted(&self.subscriptions, &item.message) {
                self.bytes -= item.message.size();
            } else {
                item.message.lost = take(&mut lost);
                self.stream.push_back(item);
            }
        }
        lost
    }

    /// Drops the longest queue but that of `source`: the program receives from this one alone. How many there were.
    pub(crate) fn drop_unclaimed(&mut self, source: Source) -> u64 {
        let own = |each: &Held| match &each.target {
            Target::Own(own) if source != Source::Own(each.id) => Some((size(own), Source::Own(each.id))),
            _ => None,
        };
        let stream = (source != Source::Client).then(|| (size(&self.stream), Source::Client));
        let most = self.subscriptions.iter().filter_map(own).chain(stream).max_by_key(|(bytes, _)| *bytes);
        let Some((bytes, most)) = most else { return 0 };
        self.bytes -= bytes;
        self.queue(most).map_or(0, |queue| take(queue).len() as u64)
    }

    /// Drops all that waits.
    pub(crate) fn clear(&mut self) -> Vec<Callback> {
        self.bytes = 0;
        self.stream.clear();
        for each in &mut self.subscriptions {
            if let Target::Own(own) = &mut each.target {
                own.clear();
            }
        }
        take(&mut self.calls).into_iter().map(|(_, callback, _)| callback).collect()
    }
}

/// Whether messages of a channel are for a subscription to this pattern, or a listener.
pub(crate) fn wants(pattern: &str, channel: &str, separator: Separator) -> bool {
    matches(pattern, channel, separator) || (pattern == LISTENER && channel.starts_with(LISTENER))
}

fn size(queue: &VecDeque<Item>) -> usize {
    queue.iter().map(|item| item.message.size()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inbox(channels: &[&str], patterns: &[&str]) -> Inbox {
        let mut inbox = Inbox::default();
        for pattern in patterns {
            inbox.add(pattern, None);
        }
        for channel in channels {
            inbox.put(Message::new(channel.to_string(), vec![0; 100], None), Separator::Slash);
        }
        inbox
    }

    fn all(inbox: &mut Inbox, source: Source) -> Vec<String> {
        std::iter::from_fn(|| inbox.take(source)).map(|message| message.channel).collect()
    }

    #[test]
    fn a_new_stream_takes_what_waits_for_it_alone() {
        let mut inbox = inbox(&["a", "b", "a", "c"], &["a", "b"]);
        inbox.open_own(1, Separator::Slash);
        assert_eq!(all(&mut inbox, Source::Own(1)), ["a", "a"]);
        assert_eq!(all(&mut inbox, Source::Client), ["b", "c"]);
        assert!(inbox.is_empty());
    }

    #[test]
    fn a_message_for_two_streams_is_in_both_until_one_goes_back() {
        let mut inbox = inbox(&["a", "b", "a"], &["a", ">"]);
        let bytes = inbox.bytes();
        inbox.open_own(1, Separator::Slash);
        inbox.close_own(1);
        assert_eq!(inbox.bytes(), bytes);
        assert_eq!(all(&mut inbox, Source::Client), ["a", "b", "a"]);
        assert!(inbox.is_empty());
    }

    #[test]
    fn the_longest_stream_that_nobody_reads_is_dropped() {
        let mut inbox = inbox(&["a", "b", "a", "c"], &["a", "b"]);
        inbox.open_own(1, Separator::Slash);
        inbox.open_own(2, Separator::Slash);
        assert_eq!(inbox.drop_unclaimed(Source::Own(2)), 2);
        assert_eq!(all(&mut inbox, Source::Client), ["c"]);
        assert_eq!(all(&mut inbox, Source::Own(2)), ["b"]);
        assert_eq!(inbox.drop_unclaimed(Source::Client), 0);
        assert!(inbox.is_empty());
    }

    #[test]
    fn listeners_get_what_is_directed_beside_each_other() {
        let mut inbox = inbox(&[], &["a"]);
        assert!(!inbox.listens());
        inbox.listen(None);
        let served = inbox.add(LISTENER, None);
        inbox.open_own(served, Separator::Slash);
        for channel in ["!", "!here/x/1", "a", "b"] {
            inbox.put(Message::new(channel.into(), Vec::new(), None), Separator::Slash);
        }
        assert_eq!(all(&mut inbox, Source::Own(served)), ["!", "!here/x/1"]);
        assert_eq!(all(&mut inbox, Source::Client), ["!", "!here/x/1", "a", "b"]);
        assert_eq!(inbox.patterns().count(), 0);
        assert!(inbox.listens());
        assert!(inbox.is_empty());
    }

    #[test]
    fn a_second_listen_takes_the_place_of_the_first() {
        let mut inbox = inbox(&[], &[]);
        let callback = || -> Callback { Arc::new(Mutex::new(|_: &Client, _: Message| ())) };
        assert!(inbox.listen(Some(callback())).is_none());
        inbox.put(Message::new("!".into(), Vec::new(), None), Separator::Slash);
        assert!(inbox.listen(None).is_some());
        inbox.put(Message::new("!".into(), Vec::new(), None), Separator::Slash);
        assert!(inbox.take_call(Source::Client).is_some());
        assert_eq!(all(&mut inbox, Source::Client), ["!"]);
        assert_eq!(inbox.subscriptions.len(), 1);
    }

    #[test]
    fn what_came_since_and_is_unwanted_leaves_its_loss_to_the_next() {
        let mut inbox = inbox(&["a"], &[]);
        let since = inbox.next_serial();
        for (channel, lost) in [("b", 3), ("a", 1), ("b", 2)] {
            let message = Message { lost, ..Message::new(channel.into(), Vec::new(), None) };
            inbox.put(message, Separator::Slash);
        }
        assert_eq!(inbox.drop_since(since, |_, message| message.channel == "b"), 2);
        let left =
            [inbox.take(Source::Client), inbox.take(Source::Client)].map(|message| message.map(|each| each.lost));
        assert_eq!(left, [Some(0), Some(4)]);
        assert!(inbox.is_empty());
    }
}
