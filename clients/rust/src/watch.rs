//! Who is told whether anybody listens (clients/PROTOCOL.md, "Watches"). The daemon tells a state, perhaps the same again
//! on a new connection; a callback is told of changes alone, like a notice at the end of a call.

use std::sync::{Arc, Mutex};

use crate::session::{Ask, Change, Session};

/// A function of the program. One thread at a time calls it.
pub(crate) type OnNews = Arc<Mutex<dyn FnMut(&str, bool) + Send>>;

#[derive(Clone)]
pub(crate) struct Watch {
    pub(crate) pattern: String,
    callback: OnNews,
    wanted: Option<bool>, // as the daemon has said last
    told: Option<bool>,
}

impl Watch {
    pub(crate) fn new(pattern: &str, callback: OnNews) -> Watch {
        Watch { pattern: pattern.into(), callback, wanted: None, told: None }
    }
}

impl Session {
    /// Begins a watch, in place of an earlier one of this pattern.
    pub(crate) fn begin_watch(&mut self, watch: Watch) {
        self.end_watch(&watch.pattern);
        self.watches.push(watch);
        self.news = true; // it may have come before
    }

    /// Ends a watch, and returns whether there was one. Its callback is dropped without the lock.
    pub(crate) fn end_watch(&mut self, pattern: &str) -> bool {
        let index = self.watches.iter().position(|each| each.pattern == pattern);
        if let Some(index) = index {
            let watch = self.watches.swap_remove(index);
            self.ended.push(watch);
        }
        index.is_some()
    }

    /// Ends a watch that has failed. If it has left on this connection, and there was none before, it is taken back.
    pub(crate) fn give_up_watch(&mut self, watch: &Watch, said: u64) {
        let agreed = self.watches.iter().any(|each| Arc::ptr_eq(&each.callback, &watch.callback));
        if agreed {
            self.end_watch(&watch.pattern);
        }
        if agreed || said == self.connection {
            self.take_back_watch(&watch.pattern);
        }
    }

    /// Has a watch ended, without waiting for it, unless there is another, or a call of another thread has asked for one
    /// here. What is asked for later goes behind it.
    pub(crate) fn take_back_watch(&mut self, pattern: &str) {
        let asked = self.ask.as_ref().filter(|ask| ask.said && ask.connection == self.connection);
        let asked = asked.is_some_and(|ask| matches!(&ask.change, Change::Watch(watch) if watch.pattern == pattern));
        if self.socket.is_some() && !asked && !self.watches.iter().any(|each| each.pattern == pattern) {
            self.send_later(format!("CMSG unwatch\0{pattern}"), None);
        }
    }

    /// The watches of a pattern: one that is there, and one that is being asked for.
    fn watches_of<'a>(&'a mut self, pattern: &'a str) -> impl Iterator<Item = &'a mut Watch> {
        let asked = match &mut self.ask {
            Some(Ask { change: Change::Watch(watch), .. }) => Some(watch),
            _ => None,
        };
        self.watches.iter_mut().chain(asked).filter(move |each| each.pattern == pattern)
    }

    /// Keeps what the daemon says of a watch, `<where> <pattern>`. Of a new one it says that before the pong.
    pub(crate) fn handle_wanted(&mut self, value: &str) {
        let (place, pattern) = value.split_once(' ').unwrap_or((value, ""));
        self.news = true;
        for watch in self.watches_of(pattern) {
            watch.wanted = Some(place != "no"); // a newer daemon may have more words
        }
    }

    /// The daemon has agreed to a watch: what it had said of the pattern belongs to an earlier one.
    pub(crate) fn forget_news(&mut self, pattern: &str) {
        self.watches_of(pattern).for_each(|watch| watch.wanted = watch.told);
    }

    /// A callback, and what it is to be told.
    pub(crate) fn take_news(&mut self) -> Option<(OnNews, String, bool)> {
        let watch = self.watches.iter_mut().find(|each| each.wanted != each.told);
        self.news = watch.is_some();
        let watch = watch?;
        watch.told = watch.wanted;
        Some((watch.callback.clone(), watch.pattern.clone(), watch.wanted?))
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{FromRawFd, OwnedFd};
    use std::time::Duration;

    use super::*;
    use crate::protocol::Handle;
    use crate::shared::Shared;
    use crate::socket::Socket;
    use crate::{Client, Options};

    fn session() -> Session {
        Session::new(Options::new(), Handle::default()).expect("descriptors")
    }

    fn watch(pattern: &str) -> Watch {
        Watch::new(pattern, Arc::new(Mutex::new(|_: &str, _| ())))
    }

    fn news(session: &mut Session) -> Vec<(String, bool)> {
        std::iter::from_fn(|| session.take_news()).map(|(_, pattern, wanted)| (pattern, wanted)).collect()
    }

    #[test]
    fn only_what_differs_is_told() {
        let mut session = session();
        session.begin_watch(watch("a"));
        for (said, told) in [
            (&["here a", "here b"][..], &[true][..]),
            (&["elsewhere a", "beyond a"], &[]),
            (&["no a", "here a"], &[]),
            (&["here a", "no a"], &[false]),
        ] {
            said.iter().for_each(|value| session.handle_wanted(value));
            assert_eq!(news(&mut session), told.iter().map(|wanted| ("a".into(), *wanted)).collect::<Vec<_>>());
        }
    }

    #[test]
    fn what_comes_before_the_pong_is_told_after_it() {
        let mut session = session();
        session.ask = Some(Ask::new(1, "watch".into(), Change::Watch(watch("a"))));
        session.handle_wanted("here a");
        assert_eq!(news(&mut session), []);
        let Some(Ask { change: Change::Watch(watch), .. }) = session.ask.take() else { panic!("it is asked") };
        session.begin_watch(watch);
        assert_eq!(news(&mut session), [("a".into(), true)]);
    }

    /// The daemon's end of a connection of this session.
    fn connected(session: &mut Session) -> Socket {
        let mut ends = [0; 2];
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: room for two descriptors, which belong to nobody else.
        let [ours, daemon] = unsafe {
            assert_eq!(libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()), 0);
            ends.map(|end| Socket::from(OwnedFd::from_raw_fd(end)))
        };
        session.socket = Some(Arc::new(ours));
        session.connection = 1;
        daemon
    }

    fn heard(daemon: &Socket) -> String {
        let mut packet = [0; 64];
        daemon.wait(true, false, None, None);
        let size = daemon.recv(&mut packet).expect("a packet");
        String::from_utf8_lossy(&packet[..size]).into()
    }

    /// Answers a request and the ping behind it.
    fn answer(daemon: &Socket, request: &str, ping: &str) {
        daemon.send(request.as_bytes()).expect("room");
        daemon.send(ping.replace("ping", "pong").as_bytes()).expect("room");
    }

    #[test]
    fn a_watch_that_failed_does_not_end_one_that_was_asked_for() {
        for (said, ended) in [(true, vec![]), (false, vec!["CMSG unwatch\0a"])] {
            let mut session = session();
            let daemon = connected(&mut session);
            let change = Change::Watch(watch("a"));
            session.ask = Some(Ask { said, connection: 1, ..Ask::new(1, "watch".into(), change) });
            session.give_up_watch(&watch("a"), 1);
            session.give_up_watch(&watch("b"), 1);
            let packets: Vec<_> = std::iter::repeat_with(|| heard(&daemon)).take(2 * ended.len() + 2).collect();
            let unwatched: Vec<_> = packets.iter().filter(|packet| !packet.starts_with("CMSG ping")).collect();
            assert_eq!(unwatched, ended.into_iter().chain(["CMSG unwatch\0b"]).collect::<Vec<_>>());
        }
    }

    #[test]
    fn an_unwatch_ends_a_watch_that_was_asked_for_before() {
        let shared = Shared::new(Options::new().timeout(Duration::from_secs(60)), false).expect("descriptors");
        let daemon = connected(&mut shared.peek());
        let client = Client { shared };
        std::thread::scope(|scope| {
            let watching = scope.spawn(|| client.watch("a", |_, _| ()));
            let (watch, ping) = (heard(&daemon), heard(&daemon));
            let ending = scope.spawn(|| client.unwatch("a"));
            while client.shared.peek().waiting < 2 {
                std::thread::sleep(Duration::from_millis(1));
            }
            answer(&daemon, &watch, &ping);
            answer(&daemon, &heard(&daemon), &heard(&daemon));
            watching.join().expect("no panic").expect("a watch");
            ending.join().expect("no panic").expect("its end");
        });
        assert_eq!(client.shared.peek().watches.len(), 0);
    }

    #[test]
    fn another_watch_of_a_pattern_is_told_anew() {
        let mut session = session();
        for _ in 0..2 {
            session.begin_watch(watch("a"));
            session.handle_wanted("no a");
            assert_eq!(news(&mut session), [("a".into(), false)]);
        }
        assert_eq!((session.watches.len(), session.ended.len()), (1, 1));
        session.end_watch("a");
        session.handle_wanted("here a");
        assert_eq!(news(&mut session), []);
    }
}
