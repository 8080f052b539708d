//! What the standard library lacks: sockets of type SEQPACKET, a descriptor for poll loops, and a way to detect a fork.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// A connection that does not block.
pub(crate) struct Socket(OwnedFd);

fn checked(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(result)
}

/// Owns a descriptor that a system call has just returned.
fn owned(result: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: the descriptor is new, so nothing else owns it.
    checked(result).map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
}

static GENERATION: AtomicU32 = AtomicU32::new(0);

/// A number that changes in a child of fork, once `watch_forks` was called. Reading it is many times cheaper than
/// getpid(2).
pub(crate) fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

pub(crate) fn watch_forks() -> io::Result<()> {
    extern "C" fn forked() {
        GENERATION.fetch_add(1, Ordering::Relaxed);
    }
    static WATCHED: OnceLock<libc::c_int> = OnceLock::new();
    // SAFETY: the function does nothing that a child of fork may not do.
    match WATCHED.get_or_init(|| unsafe { libc::pthread_atfork(None, None, Some(forked)) }) {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(*error)),
    }
}

/// The time since some moment, a few milliseconds old. Reading it is many times cheaper than [`Instant::now`].
pub(crate) fn coarse_time() -> Duration {
    // SAFETY: a timespec may be all zero; the pointer is to it.
    let now = unsafe {
        let mut now: libc::timespec = mem::zeroed();
        libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &mut now);
        now
    };
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// A number that nobody can guess.
pub(crate) fn random() -> io::Result<u64> {
    let mut bytes = [0; 8];
    // SAFETY: the buffer is as long as it says.
    let size = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    checked(size.signum() as libc::c_int).map(|_| u64::from_ne_bytes(bytes))
}

impl Socket {
    /// Connects to an address: a path, or `@name` (abstract).
    pub fn connect(bytes: &[u8]) -> io::Result<Socket> {
        // SAFETY: a sockaddr_un may be all zero.
        let mut to: libc::sockaddr_un = unsafe { mem::zeroed() };
        to.sun_family = libc::AF_UNIX as libc::sa_family_t;
        if bytes.len() >= to.sun_path.len() || bytes.contains(&0) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not an address of a socket"));
        }
        for (to, from) in to.sun_path.iter_mut().zip(bytes) {
            *to = *from as libc::c_char;
        }
        let mut size = mem::size_of::<libc::sa_family_t>() + bytes.len();
        match bytes.first() {
            Some(b'@') => to.sun_path[0] = 0,
            _ => size += 1,
        }
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: `to` lives, and has at least `size` bytes.
        unsafe {
            let socket = owned(libc::socket(libc::AF_UNIX, kind, 0))?;
            checked(libc::connect(
                socket.as_raw_fd(),
                (&to as *const libc::sockaddr_un).cast(),
                size as libc::socklen_t,
            ))?;
            Ok(Socket(socket))
        }
    }

    pub fn send(&self, packet: &[u8]) -> io::Result<()> {
        // SAFETY: the pointer and the length are those of a slice.
        let sent = unsafe { libc::send(self.0.as_raw_fd(), packet.as_ptr().cast(), packet.len(), libc::MSG_NOSIGNAL) };
        checked(sent.signum() as libc::c_int).map(drop)
    }

    /// Receives one packet and returns its size; 0 at the end of the connection.
    pub fn recv(&self, buffer: &mut [u8]) -> io::Result<usize> {
        // SAFETY: the pointer and the length are those of a slice.
        let size = unsafe { libc::recv(self.0.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), 0) };
        checked(size.signum() as libc::c_int).map(|_| size as usize)
    }

    /// Ends the connection for whoever waits at it, too.
    pub fn shut(&self) {
        // SAFETY: no pointers.
        unsafe { libc::shutdown(self.0.as_raw_fd(), libc::SHUT_RDWR) };
    }

    /// Waits until the socket can be read, or (`room`) written: true. False when the bell rings, or at the deadline.
    pub fn wait(&self, read: bool, room: bool, bell: Option<&Bell>, deadline: Option<Instant>) -> bool {
        let events = if read { libc::POLLIN } else { 0 } | if room { libc::POLLOUT } else { 0 };
        loop {
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            // Rounded up, since the last part of a millisecond would be a busy loop.
            let milliseconds = left.map_or(-1, |left| (left.as_micros().div_ceil(1000)).min(1_000_000) as libc::c_int);
            let bell = bell.map_or(-1, |bell| bell.0.as_raw_fd()); // poll(2) ignores -1
            let mut polled = [
                libc::pollfd { fd: self.0.as_raw_fd(), events, revents: 0 },
                libc::pollfd { fd: bell, events: libc::POLLIN, revents: 0 },
            ];
            // SAFETY: two pollfds.
            if unsafe { libc::poll(polled.as_mut_ptr(), 2, milliseconds) } > 0 {
                return polled[0].revents != 0;
            }
            if left == Some(Duration::ZERO) {
                return false;
            }
        }
    }
}

/// Wakes a thread that waits at a socket.
pub(crate) struct Bell(OwnedFd);

impl Bell {
    pub fn new() -> io::Result<Bell> {
        // SAFETY: no pointers.
        owned(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) }).map(Bell)
    }

    pub fn ring(&self) {
        let one = 1_u64;
        // SAFETY: eight bytes. It fails only when it rings already.
        unsafe { libc::write(self.0.as_raw_fd(), (&one as *const u64).cast(), 8) };
    }

    pub fn hush(&self) {
        let mut rung = 0_u64;
        // SAFETY: eight bytes. It fails only when it does not ring.
        unsafe { libc::read(self.0.as_raw_fd(), (&mut rung as *mut u64).cast(), 8) };
    }
}

/// A descriptor that stays the same while connections come and go: an epoll of the connection and a timer. The timer
/// rings when a message waits in the client, or when it is time to connect again.
pub(crate) struct Readiness {
    epoll: OwnedFd,
    timer: OwnedFd,
    ring_at: Option<Instant>,
}

impl Readiness {
    pub fn new() -> io::Result<Readiness> {
        // SAFETY: no pointers.
        let (epoll, timer) = unsafe {
            let flags = libc::TFD_CLOEXEC | libc::TFD_NONBLOCK;
            (
                owned(libc::epoll_create1(libc::EPOLL_CLOEXEC))?,
                owned(libc::timerfd_create(libc::CLOCK_MONOTONIC, flags))?,
            )
        };
        let made = Readiness { epoll, timer, ring_at: None };
        made.change(libc::EPOLL_CTL_ADD, made.timer.as_raw_fd())?;
        Ok(made)
    }

    fn change(&self, operation: libc::c_int, fd: RawFd) -> io::Result<()> {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
        // SAFETY: one event.
        checked(unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), operation, fd, &mut event) }).map(drop)
    }

    pub fn watch(&self, socket: &Socket) -> io::Result<()> {
        self.change(libc::EPOLL_CTL_ADD, socket.0.as_raw_fd())
    }

    /// Removes a socket from the epoll: close(2) does not do that while a child of fork has a copy.
    pub fn forget(&self, socket: &Socket) {
        let _ = self.change(libc::EPOLL_CTL_DEL, socket.0.as_raw_fd());
    }

    /// Makes the descriptor readable from `at` on; `None`: only when the connection is.
    pub fn ring(&mut self, at: Option<Instant>) {
        if at == self.ring_at {
            return;
        }
        self.ring_at = at;
        let left = at.map(|at| at.saturating_duration_since(Instant::now()).max(Duration::from_nanos(1))); // 0: never
        let left = left.unwrap_or_default();
        // SAFETY: an itimerspec may be all zero; one pointer is to it, and the other may be null.
        unsafe {
            let mut timer: libc::itimerspec = mem::zeroed();
            timer.it_value.tv_sec = left.as_secs() as libc::time_t;
            timer.it_value.tv_nsec = left.subsec_nanos() as _;
            libc::timerfd_settime(self.timer.as_raw_fd(), 0, &timer, std::ptr::null_mut());
        }
    }
}

#[cfg(test)]
impl From<OwnedFd> for Socket {
    fn from(descriptor: OwnedFd) -> Socket {
        Socket(descriptor)
    }
}

impl AsRawFd for Socket {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl AsRawFd for Readiness {
    fn as_raw_fd(&self) -> RawFd {
        self.epoll.as_raw_fd()
    }
}
