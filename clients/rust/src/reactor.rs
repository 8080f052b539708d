//! How the tasks of tokio wait for a session. A task that waits tries again what it was about to do, so a wait that ends
//! for nothing costs only time; a wait that misses something would be for ever.

use std::future::{pending, poll_fn, Future};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio::io::unix::AsyncFd;
use tokio::io::Interest;
use tokio::sync::Notify;
use tokio::time::sleep_until;

use crate::session::Wait;
use crate::shared::{AtEnd, Shared};
use crate::socket::Socket;

/// The kernel may have no room for another descriptor to watch.
const WATCH_PAUSE: Duration = Duration::from_millis(20);

type Watched = Arc<AsyncFd<Arc<Socket>>>;

#[derive(Default)]
pub(crate) struct Reactor {
    changed: Notify,
    watched: Mutex<Option<(u64, Watched)>>, // with the number of the connection
}

impl Reactor {
    pub(crate) fn wake(&self) {
        self.changed.notify_waiters();
    }

    /// Lets go of the socket of a connection that has ended.
    pub(crate) fn forget(&self) {
        *self.watched.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    pub(crate) async fn rest(&self, shared: &Shared, wait: Wait) {
        let mut changed = pin!(self.changed.notified());
        changed.as_mut().enable(); // from here on no change is missed
        let (socket, connection) = {
            let mut session = shared.locked();
            if session.changes != wait.seen {
                return;
            }
            session.waiting += 1;
            (session.socket.clone(), session.connection)
        };
        let _ended = AtEnd(|| {
            let mut session = shared.locked();
            session.waiting = session.waiting.saturating_sub(1);
        });
        if socket.is_none() {
            self.forget();
        }
        let socket = socket.filter(|_| wait.read || wait.room);
        let mut ready = pin!(async {
            match socket.map(|socket| self.watch(connection, socket)) {
                Some(Some(watched)) => {
                    if !await_ready(&watched, wait).await {
                        self.forget(); // it was of a runtime that has ended
                    }
                }
                Some(None) => tokio::time::sleep(WATCH_PAUSE).await,
                None => pending().await,
            }
        });
        let mut late = pin!(async {
            match wait.until {
                Some(at) => sleep_until(at.into()).await,
                None => pending().await,
            }
        });
        poll_fn(|context| {
            let over = changed.as_mut().poll(context).is_ready()
                || ready.as_mut().poll(context).is_ready()
                || late.as_mut().poll(context).is_ready();
            if over {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }

    fn watch(&self, connection: u64, socket: Arc<Socket>) -> Option<Watched> {
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        match &*watched {
            Some((number, known)) if *number == connection => Some(known.clone()),
            _ => {
                // SAFETY: the socket owns its descriptor, and keeps it for as long as it lives.
                let new = Arc::new(unsafe { AsyncFd::register(socket) }.ok()?);
                *watched = Some((connection, new.clone()));
                Some(new)
            }
        }
    }
}

/// False: the runtime does not watch it any more.
async fn await_ready(watched: &AsyncFd<Arc<Socket>>, wait: Wait) -> bool {
    let interest = match (wait.read, wait.room) {
        (true, true) => Interest::READABLE | Interest::WRITABLE,
        (false, true) => Interest::WRITABLE,
        _ => Interest::READABLE,
    };
    loop {
        let Ok(mut guard) = watched.ready(interest).await else { return false };
        // The session reads and writes by itself, so tokio does not know whether this is still true.
        if watched.get_ref().wait(wait.read, wait.room, None, Some(Instant::now())) {
            return true;
        }
        guard.clear_ready();
    }
}
