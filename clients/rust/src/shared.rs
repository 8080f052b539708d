//! A session that threads or tasks share: its lock, and how they wait.
//!
//! Rules:
//! 1. Nobody waits, and no function of the program runs, under the lock.
//! 2. One thread at a time waits at the socket, for all of them. The others wait for it to tell them that something has
//!    changed. Who changes something meanwhile rings a bell for it. Tasks all wait at the socket and for changes.
//! 3. A wait may end early. Who waits tries again what it was about to do.

use std::future::Future;
use std::mem::take;
use std::ops::{Deref, DerefMut};
use std::pin::{pin, Pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::current;
use std::time::Instant;

use crate::inbox::Callback;
use crate::options::OnNotice;
use crate::protocol::{Handle, Message};
use crate::session::{is_past, Session, Wait};
use crate::socket::Socket;
use crate::{Client, Options, Result};

pub(crate) struct Shared {
    session: Mutex<Session>,
    changed: Condvar,
    on_notice: Mutex<OnNotice>,
    untold: AtomicBool, // there may be notices, news of watches, or what is to be dropped
    #[cfg(feature = "tokio")]
    pub(crate) reactor: Option<crate::reactor::Reactor>, // of tasks; without it threads wait
}

/// The session, for as long as nobody waits. At the end of that the others learn of changes.
pub(crate) struct Locked<'a> {
    session: MutexGuard<'a, Session>,
    shared: &'a Shared,
    seen: u64,
}

impl Deref for Locked<'_> {
    type Target = Session;

    fn deref(&self) -> &Session {
        &self.session
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut Session {
        &mut self.session
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        if self.watched {
            self.ring();
        }
        if !self.notices.is_empty() || self.news || !self.garbage.is_empty() || !self.ended.is_empty() {
            self.shared.untold.store(true, Ordering::Relaxed);
        }
        if self.waiting > 0 && self.changes != self.seen {
            self.ring_bell();
            self.shared.wake();
        }
    }
}

impl Shared {
    pub(crate) fn new(mut options: Options, tasks: bool) -> Result<Arc<Shared>> {
        let on_notice = std::mem::replace(&mut options.on_notice, Box::new(|_| ()));
        let mut session = Session::new(options, Handle::default())?;
        let _ = tasks;
        #[cfg(feature = "tokio")]
        let reactor = tasks.then(crate::reactor::Reactor::default);
        Ok(Arc::new_cyclic(|handle| {
            session.handle = Handle(handle.clone());
            Shared {
                session: Mutex::new(session),
                changed: Condvar::new(),
                on_notice: Mutex::new(on_notice),
                untold: AtomicBool::new(false),
                #[cfg(feature = "tokio")]
                reactor,
            }
        }))
    }

    /// The session. A child of fork first becomes a source of its own.
    pub(crate) fn lock(&self) -> Result<Locked<'_>> {
        let mut session = self.peek();
        session.own_process()?;
        Ok(session)
    }

    /// The session as it is.
    pub(crate) fn peek(&self) -> Locked<'_> {
        let session = self.locked();
        Locked { seen: session.changes, session, shared: self }
    }

    pub(crate) fn locked(&self) -> MutexGuard<'_, Session> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        self.changed.notify_all();
        #[cfg(feature = "tokio")]
        self.reactor.iter().for_each(crate::reactor::Reactor::wake);
    }

    // --- waiting ---

    /// Waits: a thread within this call, a task by the future.
    pub(crate) fn rest(&self, wait: Wait) -> Rest<'_> {
        #[cfg(feature = "tokio")]
        if let Some(reactor) = &self.reactor {
            self.tell();
            return Rest(Some(Box::pin(reactor.rest(self, wait))));
        }
        self.rest_here(wait);
        Rest(None)
    }

    /// Waits as a thread, also in a session of tasks.
    pub(crate) fn rest_here(&self, wait: Wait) {
        self.tell();
        let mut session = self.locked();
        if session.changes != wait.seen {
            return;
        }
        session.waiting += 1;
        session.readers += usize::from(wait.read);
        session.writers += usize::from(wait.room);
        session = match session.socket.clone().filter(|_| wait.read || wait.room) {
            Some(socket) if session.polled.is_none() => self.poll(session, &socket, wait),
            _ => {
                if session.polled.is_some_and(|(read, room)| (wait.read && !read) || (wait.room && !room)) {
                    session.ring_bell(); // it has to wait for this, too
                }
                let left = wait.until.map(|at| at.saturating_duration_since(Instant::now()));
                match left {
                    Some(left) => self.changed.wait_timeout(session, left).unwrap_or_else(PoisonError::into_inner).0,
                    None => self.changed.wait(session).unwrap_or_else(PoisonError::into_inner),
                }
            }
        };
        session.waiting -= 1;
        session.readers -= usize::from(wait.read);
        session.writers -= usize::from(wait.room);
    }

    /// Waits at the socket for all, and has another do that afterwards.
    fn poll<'a>(
        &'a self,
        mut session: MutexGuard<'a, Session>,
        socket: &Socket,
        wait: Wait,
    ) -> MutexGuard<'a, Session> {
        loop {
            let (read, room, bell) = (session.readers > 0, session.writers > 0, session.bell.clone());
            session.polled = Some((read, room));
            drop(session);
            let ready = socket.wait(read, room, Some(&bell), wait.until);
            session = self.locked();
            session.polled = None;
            if take(&mut session.rung) {
                bell.hush();
            }
            if ready || session.changes != wait.seen || is_past(wait.until) {
                break;
            }
        }
        if session.waiting > 1 {
            session.changes += 1;
            self.changed.notify_all();
        }
        session
    }

    // --- functions of the program ---

    /// Tells the program of notices and news, one after the other; what comes meanwhile in other threads, too.
    pub(crate) fn tell(&self) {
        if !self.untold.load(Ordering::Relaxed) {
            return;
        }
        loop {
            let mut session = self.peek();
            let garbage = (take(&mut session.garbage), take(&mut session.ended));
            let (notice, news) = match session.telling {
                None => match session.notices.pop_front() {
                    None => (None, session.take_news()),
                    notice => (notice, None),
                },
                Some(_) => (None, None),
            };
            if notice.is_some() || news.is_some() {
                session.telling = Some(current().id());
            }
            self.untold.store(false, Ordering::Relaxed); // the lock is let go of after this
            drop(session);
            drop(garbage);
            if notice.is_none() && news.is_none() {
                return;
            }
            let _ended = AtEnd(|| self.peek().telling = None);
            if let Some(notice) = notice {
                self.on_notice.lock().unwrap_or_else(PoisonError::into_inner)(&notice);
            }
            if let Some((callback, pattern, wanted)) = news {
                callback.lock().unwrap_or_else(PoisonError::into_inner)(&pattern, wanted);
            }
        }
    }

    /// Calls a callback. The caller has set `calling`.
    pub(crate) fn call(&self, client: &Client, message: Message, callback: &Callback) {
        let _ended = AtEnd(|| {
            let mut session = self.peek();
            session.calling = None;
            session.changes += 1;
        });
        callback.lock().unwrap_or_else(PoisonError::into_inner)(client, message);
    }
}

/// Does something at the end, even if a function of the program panics.
pub(crate) struct AtEnd<F: FnMut()>(pub(crate) F);

impl<F: FnMut()> Drop for AtEnd<F> {
    fn drop(&mut self) {
        self.0();
    }
}

/// The rest of a wait; for threads it has ended.
pub(crate) struct Rest<'a>(Option<Pin<Box<dyn Future<Output = ()> + Send + 'a>>>);

impl Future for Rest<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.0.as_mut().map_or(Poll::Ready(()), |rest| rest.as_mut().poll(context))
    }
}

/// Runs a function that waits within its calls.
pub(crate) fn run<T>(function: impl Future<Output = T>) -> T {
    struct Nobody;

    impl Wake for Nobody {
        fn wake(self: Arc<Self>) {}
    }

    static NOBODY: OnceLock<Waker> = OnceLock::new();
    let waker = NOBODY.get_or_init(|| Arc::new(Nobody).into());
    match pin!(function).poll(&mut Context::from_waker(waker)) {
        Poll::Ready(result) => result,
        Poll::Pending => unreachable!("a thread waits in Shared::rest"),
    }
}
