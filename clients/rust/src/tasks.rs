//! The client of programs whose tasks wait, by tokio. It has the session and the operations of [`Client`].

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;

use crate::client::{heartbeat_value, unless_closed};
use crate::inbox::Source;
use crate::operations::Received;
use crate::protocol::check_datagram;
use crate::request::Inquiry;
use crate::session::{deadline_in, Change, Deadline};
use crate::shared::Shared;
use crate::{AsyncBatch, Client, Message, Options, Request, Result, Subscription};

/// A connection to the bus for the tasks of tokio: a [`Client`] whose calls are awaited. A clone is another handle to
/// the same connection. A call that is dropped before its end leaves nothing, like one that fails.
///
/// It needs a runtime with its drivers of I/O and of time (`enable_all`).
#[derive(Clone)]
pub struct AsyncClient {
    pub(crate) client: Client,
}

impl Options {
    /// Connects to the daemon. It needs the feature `tokio`.
    pub async fn open_async(self) -> Result<AsyncClient> {
        let client = Client { shared: Shared::new(self, true)? };
        let opened = client.shared.open().await;
        client.shared.tell();
        opened.map(|()| AsyncClient { client })
    }
}

impl AsyncClient {
    /// Connects to the daemon at the usual place with the usual settings; [`Options::open_async`] has others.
    pub async fn open() -> Result<AsyncClient> {
        Options::new().open_async().await
    }

    /// Waits, and has the program know what happened meanwhile.
    async fn run<T>(&self, function: impl Future<Output = T>) -> T {
        let result = function.await;
        self.client.shared.tell();
        result
    }

    fn shared(&self) -> &Shared {
        &self.client.shared
    }

    /// Closes the connection, like [`Client::close`].
    pub fn close(&self) {
        self.client.close();
        self.shared().reactor.iter().for_each(crate::reactor::Reactor::forget);
    }

    /// Returns the client's src, like [`Client::name`].
    pub fn name(&self) -> String {
        self.client.name()
    }

    /// Takes another src, like [`Client::set_name`].
    pub async fn set_name(&self, name: &str) -> Result<()> {
        self.keep("name", name, Change::Name(name.into())).await
    }

    /// Hands one message to the daemon, like [`Client::publish`].
    pub async fn publish(&self, channel: &str, payload: impl AsRef<[u8]>) -> Result<()> {
        self.run(self.shared().publish("", channel, b"", payload.as_ref())).await
    }

    /// Publishes to every listening program of the segment.
    pub async fn publish_all(&self, payload: impl AsRef<[u8]>) -> Result<()> {
        self.publish("!", payload).await
    }

    /// Publishes to the program whose src is `target`, or to all programs below it.
    pub async fn publish_to(&self, target: &str, payload: impl AsRef<[u8]>) -> Result<()> {
        self.run(self.shared().publish("!", target, b"", payload.as_ref())).await
    }

    /// Passes on a datagram, like [`Client::send_datagram`].
    pub async fn send_datagram(&self, datagram: impl AsRef<[u8]>) -> Result<()> {
        check_datagram(datagram.as_ref())?;
        self.run(self.shared().send_messages(datagram.as_ref(), 1)).await
    }

    /// Gathers messages into as few packets as possible, like [`Client::batch`]. What is published with it has been
    /// handed to the daemon after [`AsyncBatch::flush`].
    pub fn batch(&self) -> AsyncBatch {
        AsyncBatch::new(self)
    }

    /// Returns once the daemon has processed everything sent before, like [`Client::barrier`].
    pub async fn barrier(&self) -> Result<()> {
        self.run(self.shared().barrier()).await
    }

    /// Subscribes to `pattern`, like [`Client::subscribe`]; the subscription is a stream of its own from the beginning.
    pub async fn subscribe(&self, pattern: &str) -> Result<AsyncSubscription> {
        let id = self.run(self.shared().subscribe(pattern, None)).await?;
        self.stream_of(id, pattern)
    }

    fn stream_of(&self, id: u64, pattern: &str) -> Result<AsyncSubscription> {
        let subscription = Subscription::new(&self.client, id, pattern);
        let source = subscription.source()?;
        Ok(AsyncSubscription { subscription: Arc::new(subscription), source, next: None })
    }

    /// Has messages to all (`!`) and to this program delivered: [`AsyncClient::receive`] returns them.
    pub async fn listen(&self) -> Result<()> {
        self.run(self.shared().listen(None)).await
    }

    /// Waits for the next message that is for no subscription, for ever and over reconnections.
    pub async fn receive(&self) -> Result<Message> {
        receive(&self.client, Source::Client).await
    }

    /// Asks on `channel` and returns the first reply, like [`Client::request`].
    pub async fn request(&self, channel: &str, payload: impl AsRef<[u8]>, timeout: Duration) -> Result<Message> {
        let deadline = deadline_in(timeout);
        let asked = async {
            let mut inquiry = Inquiry::begin(self.client.clone(), channel, payload.as_ref(), deadline).await?;
            inquiry.next().await?.ok_or_else(|| inquiry.timeout())
        };
        self.run(asked).await
    }

    /// Asks like [`AsyncClient::request`]; the replies come by [`AsyncReplies::next`].
    pub async fn request_many(
        &self,
        channel: &str,
        payload: impl AsRef<[u8]>,
        timeout: Duration,
    ) -> Result<AsyncReplies> {
        let inquiry = Inquiry::begin(self.client.clone(), channel, payload.as_ref(), deadline_in(timeout));
        Ok(AsyncReplies { inquiry: Some(self.run(inquiry).await?) })
    }

    /// Replies to a request.
    pub async fn reply(&self, request: &Request, payload: impl AsRef<[u8]>) -> Result<()> {
        self.run(self.shared().publish("!", &request.src, &request.head, payload.as_ref())).await
    }

    /// Subscribes to `pattern`, and returns when that is in force what serves: a future that replies to each request with
    /// what `handler` returns, one after the other, until the client is closed. Await it, or give it to a task; when it
    /// is dropped, the subscription ends. Where the handler returns `None`, the program replies later.
    pub async fn serve<H, F, R>(&self, pattern: &str, mut handler: H) -> Result<impl Future<Output = Result<()>>>
    where
        H: FnMut(Request) -> F,
        F: Future<Output = Option<R>>,
        R: AsRef<[u8]>,
    {
        self.client.check_serves()?;
        let id = self.run(self.shared().serve(pattern, None)).await?;
        let mut service = Service(self.stream_of(id, pattern)?);
        let bus = self.clone();
        Ok(async move {
            while let Some(message) = service.0.next().await {
                let Some(request) = message?.fresh_request() else { continue };
                let Some(payload) = handler(request.clone()).await else { continue };
                if let Err(error) = bus.reply(&request, payload).await {
                    bus.client.report_reply(&request, &error);
                }
            }
            Ok(())
        })
    }

    /// Has `callback` told whether anybody else listens, like [`Client::watch`]. It must not block: a task awaits what
    /// else there is to do.
    pub async fn watch(&self, pattern: &str, callback: impl FnMut(&str, bool) + Send + 'static) -> Result<()> {
        self.run(self.shared().watch(pattern, Arc::new(Mutex::new(callback)))).await
    }

    /// Ends that, like [`Client::unwatch`].
    pub async fn unwatch(&self, pattern: &str) -> Result<()> {
        self.run(self.shared().unwatch(pattern)).await
    }

    /// Has the daemon publish heartbeats, like [`Client::heartbeat`].
    pub async fn heartbeat(&self, interval: Duration, text: &str) -> Result<()> {
        let (value, change) = heartbeat_value(interval, text)?;
        self.keep("heartbeat", &value, change).await
    }

    async fn keep(&self, key: &str, value: &str, change: Change) -> Result<()> {
        self.run(self.shared().control(key, value, change, self.shared().usual_deadline())).await.map(drop)
    }

    /// Makes any other control request, like [`Client::control`].
    pub async fn control(&self, key: &str, value: &str) -> Result<String> {
        self.run(self.shared().control(key, value, Change::Nothing, self.shared().usual_deadline())).await
    }

    /// Returns what the daemon says of itself, like [`Client::status`].
    pub async fn status(&self) -> Result<String> {
        self.control("status", "").await
    }

    /// Returns the clients of the daemon, like [`Client::clients`].
    pub async fn clients(&self) -> Result<String> {
        self.run(self.shared().pages("clients")).await
    }

    /// Returns the sources that the daemon hears, like [`Client::sources`].
    pub async fn sources(&self) -> Result<String> {
        self.run(self.shared().pages("sources")).await
    }

    /// Returns how many messages the daemon has dropped in all, because this program read too slowly.
    pub fn lost(&self) -> u64 {
        self.client.lost()
    }
}

impl fmt::Debug for AsyncClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsyncClient").field("client", &self.client).finish()
    }
}

async fn receive(client: &Client, source: Source) -> Result<Message> {
    let deadline: Deadline = None;
    loop {
        let received = client.shared.receive(client, source, deadline, None).await;
        client.shared.tell();
        if let Some(message) = received? {
            return Ok(message);
        }
    }
}

/// A subscription of an [`AsyncClient`]: a stream of messages, which ends when it or the client is closed.
///
/// To drop it does not end it: its messages go on, in the stream of the client. To end it call
/// [`AsyncSubscription::close`].
pub struct AsyncSubscription {
    subscription: Arc<Subscription>,
    source: Source,
    next: Option<Pin<Box<dyn Future<Output = Result<Message>> + Send>>>,
}

impl AsyncSubscription {
    /// Returns the pattern.
    pub fn pattern(&self) -> &str {
        self.subscription.pattern()
    }

    /// Waits for the next message; `None` when the subscription or the client is closed.
    pub async fn next(&mut self) -> Option<Result<Message>> {
        std::future::poll_fn(|context| Pin::new(&mut *self).poll_next(context)).await
    }

    /// Ends the subscription at once, even if the daemon does not answer.
    pub async fn close(&self) -> Result<()> {
        let client = &self.subscription.client;
        let result = client.shared.unsubscribe(self.subscription.id).await;
        client.shared.tell();
        result
    }
}

impl Stream for AsyncSubscription {
    type Item = Result<Message>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.next.is_none() {
            let client = &self.subscription.client;
            let received = client.shared.lock().and_then(|mut session| session.receive_now(self.source));
            client.shared.tell();
            match received {
                Ok(Received::Message(message)) => return Poll::Ready(Some(Ok(message))),
                Ok(Received::Later(_)) => {}
                Err(error) => return Poll::Ready(unless_closed(Err(error))),
            }
            let (subscription, source) = (self.subscription.clone(), self.source);
            self.next = Some(Box::pin(async move { receive(&subscription.client, source).await }));
        }
        let next = self.next.as_mut().expect("made above");
        let Poll::Ready(result) = next.as_mut().poll(context) else { return Poll::Pending };
        self.next = None;
        Poll::Ready(unless_closed(result))
    }
}

impl fmt::Debug for AsyncSubscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsyncSubscription").field("pattern", &self.pattern()).finish_non_exhaustive()
    }
}

/// The subscription of a handler. Nobody replies without it, so it ends with it.
struct Service(AsyncSubscription);

impl Drop for Service {
    fn drop(&mut self) {
        self.0.subscription.client.shared.abandon(self.0.subscription.id);
    }
}

/// See [`AsyncClient::request_many`]. To drop it ends the request.
#[derive(Debug)]
pub struct AsyncReplies {
    inquiry: Option<Inquiry>, // none: it has ended
}

impl AsyncReplies {
    /// Waits for the next reply; `None` when the time is over. That nobody listens is an error.
    pub async fn next(&mut self) -> Option<Result<Message>> {
        let inquiry = self.inquiry.as_mut()?;
        let reply = inquiry.next().await.transpose();
        inquiry.client().shared.tell();
        if !matches!(reply, Some(Ok(_))) {
            self.inquiry = None;
        }
        reply
    }
}

impl Shared {
    /// Ends a subscription without waiting for the daemon.
    fn abandon(&self, id: u64) {
        if let Ok(mut session) = self.lock() {
            let since = session.inbox.next_serial();
            session.undo(id, true, since);
            session.changes += 1;
        }
        self.tell();
    }
}
