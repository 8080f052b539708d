//! The client of programs that wait in their calls.

use std::fmt;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::error::Code;
use crate::inbox::{Callback, Source};
use crate::json;
use crate::notice::NoticeKind;
use crate::operations::Received;
use crate::protocol::{check_datagram, Message};
use crate::request::{Inquiry, Request};
use crate::session::{deadline_in, Change, Deadline};
use crate::shared::{run, Shared};
use crate::{Batch, Error, Format, Options, Result, Subscription};

/// A connection to the bus of this host, which connects again by itself. A clone is another handle to the same
/// connection; any thread may use any of them at any time.
///
/// The connection is closed at once when it is closed by [`Client::close`], or when nothing refers to it any more: no
/// handle, no [`Subscription`], and no callback that holds one. Call [`Client::barrier`] first to be sure that
/// everything has arrived.
#[derive(Clone)]
pub struct Client {
    pub(crate) shared: Arc<Shared>,
}

impl Client {
    /// Connects to the daemon at the usual place with the usual settings; [`Options`] has others.
    pub fn open() -> Result<Client> {
        Options::new().open()
    }

    pub(crate) fn connect(options: Options) -> Result<Client> {
        let client = Client { shared: Shared::new(options, false)? };
        client.run(client.shared.open())?;
        Ok(client)
    }

    /// Runs a function that waits, and has the program know what happened meanwhile.
    pub(crate) fn run<T>(&self, function: impl std::future::Future<Output = T>) -> T {
        let result = run(function);
        self.shared.tell();
        result
    }

    /// Closes the connection at once, without a barrier. Later calls fail with [`Code::Closed`], and so do those that
    /// wait in other threads.
    pub fn close(&self) {
        self.shared.close();
        self.shared.tell();
    }

    /// Returns the client's src as others see it; without a connection, the last one (in a child of fork, its
    /// parent's).
    pub fn name(&self) -> String {
        self.shared.peek().name.clone()
    }

    /// Takes another src, and keeps it over reconnections.
    pub fn set_name(&self, name: &str) -> Result<()> {
        let change = Change::Name(name.into());
        self.run(self.shared.control("name", name, change, self.shared.usual_deadline())).map(drop)
    }

    // --- publishing ---

    /// Hands one message to the daemon. The call waits only while the daemon is away or takes no more; after an error
    /// the message was not sent. If the daemon then rejects the message, a notice says so, and the next
    /// [`Client::barrier`] fails.
    pub fn publish(&self, channel: &str, payload: impl AsRef<[u8]>) -> Result<()> {
        let result = self.shared.publish_here("", channel, b"", payload.as_ref());
        self.shared.tell();
        result
    }

    /// Publishes to every listening program of the segment.
    pub fn publish_all(&self, payload: impl AsRef<[u8]>) -> Result<()> {
        self.publish("!", payload)
    }

    /// Publishes to the program whose src is `target`, or to all programs below it.
    pub fn publish_to(&self, target: &str, payload: impl AsRef<[u8]>) -> Result<()> {
        let result = self.shared.publish_here("!", target, b"", payload.as_ref());
        self.shared.tell();
        result
    }

    /// Passes on a whole BCCN1 datagram from elsewhere. It needs the right to bridge.
    pub fn send_datagram(&self, datagram: impl AsRef<[u8]>) -> Result<()> {
        check_datagram(datagram.as_ref())?;
        self.run(self.shared.send_messages(datagram.as_ref(), 1))
    }

    /// Gathers messages into as few packets as possible, if packing was agreed ([`Options::pack`]); otherwise they go
    /// one by one.
    pub fn batch(&self) -> Batch<'_> {
        Batch::new(self)
    }

    /// Returns once the daemon has processed everything sent before. The error is the first that the daemon reported
    /// about a message since the last barrier, or [`Code::Unconfirmed`] if the connection broke in between and messages
    /// may be missing.
    pub fn barrier(&self) -> Result<()> {
        self.run(self.shared.barrier())
    }

    // --- subscribing and receiving ---

    /// Subscribes to `pattern`, and returns when the subscription is in force. It stays over reconnections; after an
    /// error there is none. Its messages go to the stream of the client, until the program asks the [`Subscription`]
    /// for them.
    pub fn subscribe(&self, pattern: &str) -> Result<Subscription> {
        let id = self.run(self.shared.subscribe(pattern, None))?;
        Ok(Subscription::new(self, id, pattern))
    }

    /// Subscribes like [`Client::subscribe`], and has each message given to `callback`. Callbacks run in the calls that
    /// receive, of this client or of a subscription, one at a time. They may call every function of the client.
    pub fn subscribe_with(
        &self,
        pattern: &str,
        callback: impl FnMut(&Client, Message) + Send + 'static,
    ) -> Result<Subscription> {
        let callback: Callback = Arc::new(Mutex::new(callback));
        let id = self.run(self.shared.subscribe(pattern, Some(callback)))?;
        Ok(Subscription::new(self, id, pattern))
    }

    /// Has messages to all (`!`) and to this program delivered, to the stream of the client. Any subscription does that,
    /// too.
    pub fn listen(&self) -> Result<()> {
        self.listen_by(None)
    }

    /// Listens like [`Client::listen`], and has each of these messages given to `callback`.
    pub fn listen_with(&self, callback: impl FnMut(&Client, Message) + Send + 'static) -> Result<()> {
        self.listen_by(Some(Arc::new(Mutex::new(callback))))
    }

    fn listen_by(&self, callback: Option<Callback>) -> Result<()> {
        self.run(self.shared.listen(callback))
    }

    /// Waits for the next message of the client's stream, for ever and over reconnections, and calls the callbacks
    /// meanwhile.
    pub fn receive(&self) -> Result<Message> {
        loop {
            if let Some(message) = self.receive_from(Source::Client, || None)? {
                return Ok(message);
            }
        }
    }

    /// Waits for the next message; `None` if there is none in time.
    pub fn receive_timeout(&self, timeout: Duration) -> Result<Option<Message>> {
        self.receive_from(Source::Client, || deadline_in(timeout))
    }

    /// Returns a message that is there already. Whenever the descriptor ([`AsFd`]) is readable, call this until it
    /// returns `None`.
    pub fn try_receive(&self) -> Result<Option<Message>> {
        self.receive_timeout(Duration::ZERO)
    }

    /// Returns an iterator that waits for messages. It ends when the client is closed.
    pub fn messages(&self) -> Messages {
        Messages { client: self.clone() }
    }

    pub(crate) fn receive_from(&self, source: Source, deadline: impl Fn() -> Deadline) -> Result<Option<Message>> {
        let received = self.shared.lock()?.receive_now(source);
        let first = match received {
            Ok(Received::Later(first)) => first,
            Ok(Received::Message(message)) => {
                self.shared.tell();
                return Ok(Some(message));
            }
            Err(error) => {
                self.shared.tell();
                return Err(error);
            }
        };
        self.run(self.shared.receive(self, source, deadline(), first))
    }

    // --- requests ---

    /// Asks on `channel` and returns the first reply. The errors are [`Code::Timeout`], and within a third of a second
    /// [`Code::Nobody`], if no program of this host or of another with a daemon would get the request. The call needs no
    /// subscription.
    pub fn request(&self, channel: &str, payload: impl AsRef<[u8]>, timeout: Duration) -> Result<Message> {
        self.run(async {
            let deadline = deadline_in(timeout);
            let mut inquiry = Inquiry::begin(self.clone(), channel, payload.as_ref(), deadline).await?;
            inquiry.next().await?.ok_or_else(|| inquiry.timeout())
        })
    }

    /// Asks like [`Client::request`] and returns an iterator over the replies as they come. It ends when the time is
    /// over; that nobody listens is an error. `take` says how many replies are enough.
    pub fn request_many(&self, channel: &str, payload: impl AsRef<[u8]>, timeout: Duration) -> Result<Replies> {
        let inquiry = Inquiry::begin(self.clone(), channel, payload.as_ref(), deadline_in(timeout));
        Ok(Replies { inquiry: Some(self.run(inquiry)?) })
    }

    /// Subscribes to `pattern`, and replies to each request with what `handler` returns. Where that is `None`, the
    /// program calls [`Request::reply`] later, with the request or a clone of it. Other messages are ignored. It needs
    /// [`Format::Full`], else it fails with [`Code::Invalid`]. The handler runs like a callback. The pattern `!` serves
    /// what is asked of all and of this program.
    pub fn serve<R: AsRef<[u8]>>(
        &self,
        pattern: &str,
        mut handler: impl FnMut(&Request) -> Option<R> + Send + 'static,
    ) -> Result<Subscription> {
        self.check_serves()?;
        let callback: Callback = Arc::new(Mutex::new(move |client: &Client, message: Message| {
            let Some(request) = message.fresh_request() else { return };
            if let Some(Err(error)) = handler(&request).map(|payload| request.reply(payload)) {
                client.report_reply(&request, &error);
            }
        }));
        let id = self.run(self.shared.serve(pattern, Some(callback)))?;
        Ok(Subscription::new(self, id, pattern))
    }

    pub(crate) fn check_serves(&self) -> Result<()> {
        match self.shared.peek().options.format {
            Format::Full => Ok(()),
            _ => Err(Error::invalid("serve: only Format::Full shows who asks")),
        }
    }

    /// A reply that was not sent belongs to no call of the program.
    pub(crate) fn report_reply(&self, request: &Request, error: &Error) {
        let text = format!("no reply to {} on {}: {error}", request.src, request.channel);
        self.shared.peek().notify(NoticeKind::Rejected, 1, Some(error.code().clone()), text);
    }

    // --- watching ---

    /// Has `callback` called with the pattern and whether anybody else listens to channels that match it, here or on
    /// another host: as soon as it is known, and at each change. A program can so make data only while somebody wants
    /// it. Like notices, news are told at the end of any call that learns of them; the callback may call every function
    /// of a clone of the client.
    ///
    /// A watch lasts until [`Client::unwatch`], over reconnections, too: then the callback is called only if the state
    /// differs. Another call for the pattern replaces the callback, which is told anew. The errors are those of
    /// [`Client::subscribe`]; it needs the right to publish on all channels of the pattern.
    pub fn watch(&self, pattern: &str, callback: impl FnMut(&str, bool) + Send + 'static) -> Result<()> {
        self.run(self.shared.watch(pattern, Arc::new(Mutex::new(callback))))
    }

    /// Ends the watch of `pattern` at once, even if the daemon does not answer. To end one that is not there does
    /// nothing.
    pub fn unwatch(&self, pattern: &str) -> Result<()> {
        self.run(self.shared.unwatch(pattern))
    }

    // --- what else the daemon does ---

    /// Has the daemon publish `text` on `heartbeat/<name>` every so many whole seconds, and `leaving` when the client
    /// disconnects. Another call changes the text, and [`Duration::ZERO`] ends the heartbeats. They go on over
    /// reconnections.
    pub fn heartbeat(&self, interval: Duration, text: &str) -> Result<()> {
        let (value, change) = heartbeat_value(interval, text)?;
        self.run(self.shared.control("heartbeat", &value, change, self.shared.usual_deadline())).map(drop)
    }

    /// Makes any other control request of the protocol, once, and returns the value of its answer. A new connection does
    /// not repeat it.
    pub fn control(&self, key: &str, value: &str) -> Result<String> {
        self.run(self.shared.control(key, value, Change::Nothing, self.shared.usual_deadline()))
    }

    /// Returns what the daemon says of itself, as a JSON object. It needs the right to observe.
    pub fn status(&self) -> Result<String> {
        self.control("status", "")
    }

    /// Returns the clients of the daemon, as a JSON array; without the right to observe, this client alone.
    pub fn clients(&self) -> Result<String> {
        self.run(self.shared.pages("clients"))
    }

    /// Returns the sources that the daemon hears, as a JSON array. It needs the right to observe.
    pub fn sources(&self) -> Result<String> {
        self.run(self.shared.pages("sources"))
    }

    /// Returns how many messages the daemon has dropped in all, because this program read too slowly.
    pub fn lost(&self) -> u64 {
        self.shared.peek().lost
    }
}

pub(crate) fn heartbeat_value(interval: Duration, text: &str) -> Result<(String, Change)> {
    if interval.subsec_nanos() != 0 {
        return Err(Error::invalid(format!("heartbeat interval {interval:?}: must be whole seconds")));
    }
    let value = match interval.as_secs() {
        0 => "off".into(),
        seconds => format!("{seconds} {text}").trim_end().to_string(),
    };
    let kept = Some(value.clone()).filter(|_| !interval.is_zero());
    Ok((value, Change::Heartbeat(kept)))
}

impl Shared {
    pub(crate) fn close(&self) {
        // Without a descriptor a child of fork keeps its copies of the parent's, and closes nothing of the parent.
        if let Ok(mut session) = self.lock() {
            session.close();
        }
    }

    /// All pages of a listing, as one array.
    pub(crate) async fn pages(&self, key: &str) -> Result<String> {
        let (mut rows, mut cursor) = (String::new(), String::new());
        loop {
            let page = self.control(key, &cursor, Change::Nothing, self.usual_deadline()).await?;
            let more = json::inside(json::member(&page, key)?)?;
            if !rows.is_empty() && !more.is_empty() {
                rows.push(',');
            }
            rows.push_str(more);
            match json::member(&page, "next")? {
                "null" => return Ok(format!("[{rows}]")),
                next => cursor = next.trim_matches('"').into(),
            }
        }
    }
}

/// The descriptor for poll loops. It stays the same over reconnections, but not over fork.
impl AsRawFd for Client {
    fn as_raw_fd(&self) -> RawFd {
        let _ = self.shared.lock(); // a child of fork has one of its own
        let mut session = self.shared.peek();
        session.watched = true;
        session.readiness().as_raw_fd()
    }
}

/// The same descriptor.
impl AsFd for Client {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the session keeps this descriptor open, also that of an earlier process, for as long as it lives.
        unsafe { BorrowedFd::borrow_raw(self.as_raw_fd()) }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let session = self.shared.peek();
        f.debug_struct("Client").field("name", &session.name).field("connected", &session.is_connected()).finish()
    }
}

/// See [`Client::messages`].
#[derive(Debug)]
pub struct Messages {
    client: Client,
}

impl Iterator for Messages {
    type Item = Result<Message>;

    fn next(&mut self) -> Option<Self::Item> {
        unless_closed(self.client.receive())
    }
}

/// An item of an iterator that ends with the client.
pub(crate) fn unless_closed(result: Result<Message>) -> Option<Result<Message>> {
    match result {
        Err(error) if *error.code() == Code::Closed => None,
        result => Some(result),
    }
}

/// See [`Client::request_many`]. To drop it ends the request.
#[derive(Debug)]
pub struct Replies {
    inquiry: Option<Inquiry>, // none: it has ended
}

impl Iterator for Replies {
    type Item = Result<Message>;

    fn next(&mut self) -> Option<Self::Item> {
        let inquiry = self.inquiry.as_mut()?;
        let client = inquiry.client().clone();
        let reply = client.run(inquiry.next()).transpose();
        if !matches!(reply, Some(Ok(_))) {
            self.inquiry = None;
        }
        reply
    }
}
