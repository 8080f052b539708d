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

    /// Has a watch ended, without waiting for it, unless there is another, or a call of another thread asks for one.
    pub(crate) fn take_back_watch(&mut self, pattern: &str) {
        if self.socket.is_some() && self.watches_of(pattern).next().is_none() {
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
    use super::*;
    use crate::protocol::Handle;
    use crate::Options;

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

    #[test]
    fn a_watch_that_failed_does_not_end_one_that_is_asked_for() {
        let (ours, _daemon) = std::os::unix::net::UnixStream::pair().expect("sockets");
        let mut session = session();
        session.socket = Some(Arc::new(std::os::fd::OwnedFd::from(ours).into()));
        session.connection = 1;
        session.ask = Some(Ask::new(1, "watch".into(), Change::Watch(watch("a"))));
        session.give_up_watch(&watch("a"), 1);
        assert_eq!(session.withdrawn.len(), 0);
        session.give_up_watch(&watch("b"), 1);
        assert_eq!(session.withdrawn.len(), 1);
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
