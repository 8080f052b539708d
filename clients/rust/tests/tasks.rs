//! Tests the client for tokio, with the daemon at $BCCN_SOCKET. It has the session of the other client, which the
//! conformance suite tests: here is what waits in another way.
#![cfg(feature = "tokio")]

use std::time::Duration;

use bccn::{AsyncClient, Code, Format, Options};
use tokio::task::JoinSet;

const PATIENCE: Duration = Duration::from_secs(60);

/// Runs a test with a client and a channel of its own.
fn with<F: std::future::Future<Output = bccn::Result<()>>>(
    options: Options,
    test: impl FnOnce(AsyncClient, String) -> F,
) {
    assert!(std::env::var_os("BCCN_SOCKET").is_some(), "BCCN_SOCKET must name the socket of a daemon");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let bus = options.timeout(PATIENCE).open_async().await.expect("a daemon");
        // The name of another client may begin with this one: no pattern below a name matches the other's channel.
        let channel = format!("local/{}/own", bus.name());
        tokio::time::timeout(PATIENCE, test(bus, channel)).await.expect("in time").unwrap();
    });
}

#[test]
fn many_tasks_ask_publish_and_receive_at_once() {
    with(Options::new(), |bus, channel| async move {
        let mut messages = bus.subscribe(&format!("{channel}/>")).await?;
        let mut tasks = JoinSet::new();
        for number in 0..50 {
            let (bus, channel) = (bus.clone(), format!("{channel}/{number}"));
            tasks.spawn(async move {
                bus.publish(&channel, "x").await?;
                bus.barrier().await?;
                bus.control("whoami", "").await
            });
        }
        let mut channels = Vec::new();
        while channels.len() < 50 {
            channels.push(messages.next().await.expect("a message")?.channel);
        }
        while let Some(name) = tasks.join_next().await {
            assert_eq!(name.expect("no panic")?, bus.name());
        }
        channels.sort();
        channels.dedup();
        assert_eq!(channels.len(), 50);
        messages.close().await?;
        assert!(messages.next().await.is_none());
        Ok(())
    });
}

#[test]
fn a_handler_replies_until_it_is_dropped() {
    with(Options::new().format(Format::Full), |bus, channel| async move {
        let serving = bus.serve(&channel, |request| async move { Some(request.payload.to_ascii_uppercase()) }).await?;
        let asker = Options::new().timeout(PATIENCE).open_async().await?;
        {
            let mut serving = std::pin::pin!(serving);
            let mut asking = std::pin::pin!(asker.request(&channel, "hello", PATIENCE));
            let reply = std::future::poll_fn(|context| {
                use std::future::Future;
                assert!(serving.as_mut().poll(context).is_pending());
                asking.as_mut().poll(context)
            });
            assert_eq!(reply.await?.payload, b"HELLO");
        }
        bus.barrier().await?; // the daemon knows that it has ended
        let error = asker.request(&channel, "hello", PATIENCE).await.unwrap_err();
        assert_eq!(*error.code(), Code::Nobody);
        Ok(())
    });
}

#[test]
fn a_handler_of_all_replies_to_what_is_asked_of_this_program() {
    with(Options::new().format(Format::Full), |bus, channel| async move {
        let mut others = bus.subscribe(&channel).await?;
        let serving = bus.serve("!", |request| async move { Some(request.payload.to_ascii_uppercase()) }).await?;
        let serving = tokio::spawn(serving);
        let asker = Options::new().timeout(PATIENCE).open_async().await?;
        let directed = format!("!{}", bus.name());
        assert_eq!(asker.request(&directed, "hello", PATIENCE).await?.payload, b"HELLO");
        bus.publish(&channel, "not a request").await?;
        assert_eq!(others.next().await.expect("a message")?.channel, channel);
        serving.abort();
        assert!(serving.await.unwrap_err().is_cancelled());
        Ok(())
    });
}

#[test]
fn a_batch_has_been_handed_over_once_it_is_flushed() {
    for pack in [true, false] {
        with(Options::new().pack(pack), |bus, channel| async move {
            let mut messages = bus.subscribe(&channel).await?;
            let mut batch = bus.batch();
            for number in 0..1000 {
                batch.publish(&channel, number.to_string()).await?;
            }
            batch.publish(&channel, vec![b'.'; 65536]).await?; // too long for a PACK with others
            assert_eq!(*batch.publish("a\0b", "").await.unwrap_err().code(), Code::Invalid);
            batch.publish(&channel, "last").await?;
            batch.flush().await?;
            bus.barrier().await?;
            for number in 0..1000 {
                assert_eq!(messages.next().await.expect("a message")?.text(), number.to_string());
            }
            assert_eq!(messages.next().await.expect("a message")?.payload.len(), 65536);
            assert_eq!(messages.next().await.expect("a message")?.text(), "last");
            if pack {
                bus.batch().publish(&channel, "never sent").await?;
                bus.publish(&channel, "end").await?;
                assert_eq!(messages.next().await.expect("a message")?.text(), "end");
            }
            Ok(())
        });
    }
}

#[test]
fn a_watch_is_told_while_a_task_receives() {
    with(Options::new(), |bus, channel| async move {
        let (sender, mut told) = tokio::sync::mpsc::unbounded_channel();
        let listener = Options::new().timeout(PATIENCE).open_async().await?;
        let _listening = listener.subscribe(&channel).await?;
        bus.watch(&channel, move |_, wanted| sender.send(wanted).unwrap()).await?;
        let receiving = tokio::spawn({
            let bus = bus.clone();
            async move { bus.receive().await }
        });
        assert_eq!(told.recv().await, Some(true));
        listener.close();
        assert_eq!(told.recv().await, Some(false));
        receiving.abort();
        bus.unwatch(&channel).await?;
        assert_eq!(told.recv().await, None); // the callback is dropped
        Ok(())
    });
}

#[test]
fn replies_end_with_their_time() {
    with(Options::new().format(Format::Full), |bus, channel| async move {
        let serving = tokio::spawn(bus.serve(&channel, |_| async { Some("one") }).await?);
        let asker = Options::new().timeout(PATIENCE).open_async().await?;
        let mut replies = asker.request_many(&channel, "", PATIENCE).await?;
        assert_eq!(replies.next().await.expect("a reply")?.payload, b"one");
        let silent = bus.subscribe(&format!("{channel}/silent")).await?;
        let mut replies = asker.request_many(silent.pattern(), "", Duration::from_millis(50)).await?;
        assert!(replies.next().await.is_none());
        bus.close();
        serving.await.expect("no panic")
    });
}

#[test]
fn a_subscribe_that_is_dropped_leaves_nothing() {
    with(Options::new(), |bus, channel| async move {
        let name = bus.name();
        {
            let mut given_up = std::pin::pin!(bus.subscribe(&channel));
            let first = std::future::poll_fn(|context| {
                use std::future::Future;
                std::task::Poll::Ready(given_up.as_mut().poll(context)) // the SUB has left
            });
            if let std::task::Poll::Ready(subscription) = first.await {
                subscription?.close().await?; // the daemon was quicker, and nothing was given up
            }
        }
        bus.publish(&channel, "for nobody").await?;
        bus.listen().await?;
        bus.publish_to(&name, "for us").await?;
        assert_eq!(bus.receive().await?.text(), "for us");
        Ok(())
    });
}

#[test]
fn a_client_outlives_the_runtime_that_it_was_made_in() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let bus = runtime().block_on(async { Options::new().timeout(PATIENCE).open_async().await.expect("a daemon") });
    runtime().block_on(async {
        let nothing = tokio::time::timeout(Duration::from_millis(20), bus.receive()).await;
        assert!(nothing.is_err(), "it waits, and does not try again and again");
        bus.barrier().await.unwrap();
    });
}
