//! Tests what only the Rust client has, with the daemon at $BCCN_SOCKET. The conformance suite tests the rest.

use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use bccn::{Client, Code, Format, Options};

const PATIENCE: Duration = Duration::from_secs(30);

/// A client and a channel of its own.
fn open(options: Options) -> (Client, String) {
    assert!(std::env::var_os("BCCN_SOCKET").is_some(), "BCCN_SOCKET must name the socket of a daemon");
    let bus = options.timeout(PATIENCE).open().expect("a daemon");
    let channel = format!("local/{}", bus.name());
    bus.subscribe(&channel).expect("allowed");
    (bus, channel)
}

fn is_readable(bus: &Client, milliseconds: i32) -> bool {
    let mut polled = libc::pollfd { fd: bus.as_fd().as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one pollfd.
    unsafe { libc::poll(&mut polled, 1, milliseconds) == 1 }
}

#[test]
fn the_descriptor_is_readable_while_there_is_a_message() {
    let (bus, channel) = open(Options::new());
    assert!(!is_readable(&bus, 0));
    bus.publish(&channel, "in the socket").unwrap();
    assert!(is_readable(&bus, 30_000));
    bus.publish(&channel, "read by the barrier").unwrap();
    bus.barrier().unwrap();
    for text in ["in the socket", "read by the barrier"] {
        assert!(is_readable(&bus, 0));
        assert_eq!(bus.try_receive().unwrap().unwrap().text(), text);
    }
    assert!(!is_readable(&bus, 0));
    assert_eq!(bus.try_receive(), Ok(None));
}

#[test]
fn messages_are_an_iterator() {
    let (bus, channel) = open(Options::new());
    for payload in ["one", "two", "three"] {
        bus.publish(&channel, payload).unwrap();
    }
    let texts: Vec<_> = bus.messages().take(3).map(|message| message.unwrap().text().into_owned()).collect();
    assert_eq!(texts, ["one", "two", "three"]);
}

#[test]
fn origins_say_who_sent_a_message_and_when() {
    let (bus, channel) = open(Options::new().format(Format::Full));
    let before = std::time::SystemTime::now();
    bus.publish(&channel, "x").unwrap();
    let origin = bus.receive_timeout(PATIENCE).unwrap().unwrap().origin.unwrap();
    assert_eq!(
        (origin.src.as_str(), origin.peer.as_str(), origin.verdict.as_str()),
        (bus.name().as_str(), "local", "ok")
    );
    let tolerance = Duration::from_secs(1); // clocks are set
    assert!(origin.time > before - tolerance && origin.time < std::time::SystemTime::now() + tolerance);
    assert!(origin.datagram.starts_with(b"BCCN1["));
}

#[test]
fn a_dropped_batch_is_sent_but_not_by_a_child_of_fork() {
    let (bus, channel) = open(Options::new().pack(true));
    let mut batch = bus.batch();
    batch.publish(&channel, "first").unwrap();
    batch.publish(&channel, "second").unwrap();
    // SAFETY: the child uses nothing but its copy of the client.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let sent = batch.publish(&channel, "the child's").is_ok();
        drop(batch);
        let sent = sent && bus.barrier().is_ok();
        unsafe { libc::_exit(if sent { 0 } else { 1 }) };
    }
    let mut status = 0;
    unsafe { libc::waitpid(child, &mut status, 0) };
    assert_eq!(status, 0);
    drop(batch);
    bus.barrier().unwrap();
    let received = std::iter::from_fn(|| bus.try_receive().unwrap()).map(|message| message.text().into_owned());
    assert_eq!(received.collect::<Vec<_>>(), ["the child's", "first", "second"]);
}

#[test]
fn errors_have_a_code_and_a_text() {
    let (bus, channel) = open(Options::new());
    let error = bus.publish("a\0b", "").unwrap_err();
    assert_eq!(
        (error.code().as_str(), error.to_string().as_str()),
        ("invalid", "channel \"a\\0b\": must not contain NUL")
    );
    assert_eq!(bus.subscribe("two words").unwrap_err().code().as_str(), "invalid");
    assert_eq!(bus.control("no-such-key", "").unwrap_err().code().as_str(), "unknown-key");
    assert_eq!(bus.control("ping", "").unwrap_err().code().as_str(), "invalid");
    assert_eq!(bus.publish(&channel, vec![0; 1 << 20]).unwrap_err().code().as_str(), "too-large");
    bus.publish(&channel, vec![0; 65537]).unwrap();
    assert_eq!(*bus.barrier().unwrap_err().code(), Code::TooLarge);
    assert_eq!(*bus.send_datagram("MSG a").unwrap_err().code(), Code::Invalid);
    assert_eq!(*bus.heartbeat(Duration::from_millis(1500), "").unwrap_err().code(), Code::Invalid);
    let error = Options::new().path("/nonexistent/bus.sock").open().unwrap_err();
    assert_eq!(error.to_string(), "no daemon at /nonexistent/bus.sock: No such file or directory (os error 2)");
    assert_eq!(*Options::new().path("x".repeat(200)).open().unwrap_err().code(), Code::Invalid);
}

#[test]
fn the_longest_waits_do_not_overflow() {
    let (bus, channel) = open(Options::new().timeout(Duration::MAX).wait(Duration::MAX));
    bus.publish(&channel, "x").unwrap();
    bus.barrier().unwrap();
    assert_eq!(bus.receive_timeout(Duration::MAX).unwrap().unwrap().payload, b"x");
}

#[test]
fn a_client_moves_to_another_thread() {
    let (bus, channel) = open(Options::new());
    let other = std::thread::spawn(move || {
        bus.publish(&channel, "x")?;
        bus.receive()
    });
    assert_eq!(other.join().unwrap().unwrap().payload, b"x");
}

#[test]
fn threads_publish_and_ask_while_one_receives() {
    let (bus, channel) = open(Options::new());
    let receiver = std::thread::spawn({
        let bus = bus.clone();
        move || bus.messages().take(40).map(|message| message.unwrap().text().into_owned()).collect::<Vec<_>>()
    });
    let senders = ["a", "b", "c", "d"].map(|name| {
        let (bus, channel) = (bus.clone(), channel.clone());
        std::thread::spawn(move || {
            for number in 0..10 {
                bus.publish(&channel, format!("{name}{number}")).unwrap();
                assert_eq!(bus.control("whoami", "").unwrap(), bus.name());
            }
        })
    });
    senders.into_iter().for_each(|sender| sender.join().unwrap());
    let received = receiver.join().unwrap();
    for name in ["a", "b", "c", "d"] {
        let of_one: Vec<_> = received.iter().filter(|text| text.starts_with(name)).collect();
        assert_eq!(
            of_one,
            (0..10).map(|number| format!("{name}{number}")).collect::<Vec<_>>().iter().collect::<Vec<_>>()
        );
    }
}

#[test]
fn close_ends_the_calls_of_other_threads() {
    let (bus, channel) = open(Options::new());
    let subscription = bus.subscribe(&channel).unwrap();
    let (sender, started) = std::sync::mpsc::channel();
    let waits = [
        std::thread::spawn({
            let (bus, sender) = (bus.clone(), sender.clone());
            move || {
                sender.send(()).unwrap();
                bus.messages().count()
            }
        }),
        std::thread::spawn(move || {
            sender.send(()).unwrap();
            subscription.messages().count()
        }),
    ];
    assert_eq!(started.iter().take(2).count(), 2);
    bus.close();
    assert_eq!(waits.map(|wait| wait.join().unwrap()), [0, 0]);
    bus.close();
    assert_eq!(*bus.publish(&channel, "x").unwrap_err().code(), Code::Closed);
    assert_eq!(*bus.subscribe(&channel).unwrap_err().code(), Code::Closed);
    assert_eq!(*bus.try_receive().unwrap_err().code(), Code::Closed);
}

#[test]
fn a_callback_uses_its_client() {
    let (bus, channel) = open(Options::new());
    let (sender, called) = std::sync::mpsc::channel();
    let below = format!("{channel}/*");
    let mut count = 0;
    let counted = bus.subscribe_with(&below, move |bus, message| {
        count += 1;
        let target = message.channel.rsplit_once('/').unwrap().0.to_string();
        bus.publish(&target, format!("{count}")).unwrap();
        bus.barrier().unwrap();
        assert_eq!(bus.receive().unwrap().text(), format!("{count}"));
        sender.send(message.text().into_owned()).unwrap();
    });
    let counted = counted.unwrap();
    for text in ["one", "two"] {
        bus.publish(&format!("{channel}/x"), text).unwrap();
    }
    bus.barrier().unwrap();
    assert_eq!(bus.try_receive(), Ok(None));
    assert_eq!(called.iter().take(2).collect::<Vec<_>>(), ["one", "two"]);
    assert_eq!(*counted.receive().unwrap_err().code(), Code::Invalid);
    counted.close().unwrap();
    counted.close().unwrap();
    assert!(called.recv().is_err(), "the callback is dropped");
}

#[test]
fn callbacks_run_while_a_subscription_receives() {
    let (bus, channel) = open(Options::new());
    let (sender, called) = std::sync::mpsc::channel();
    bus.listen_with(move |_, message| sender.send(message.text().into_owned()).unwrap()).unwrap();
    let own = bus.subscribe(&format!("{channel}/own")).unwrap();
    bus.publish_to(&bus.name(), "to us").unwrap();
    bus.publish(own.pattern(), "x").unwrap();
    assert_eq!(own.receive().unwrap().text(), "x");
    assert_eq!(called.try_iter().collect::<Vec<_>>(), ["to us"]);
}

#[test]
fn a_stream_that_is_dropped_goes_back_to_the_client() {
    let (bus, channel) = open(Options::new());
    let own = bus.subscribe(&format!("{channel}/own")).unwrap();
    assert_eq!(own.try_receive(), Ok(None));
    for text in ["one", "two"] {
        bus.publish(own.pattern(), text).unwrap();
        bus.publish(&channel, text).unwrap();
    }
    bus.barrier().unwrap();
    assert_eq!(own.receive().unwrap().text(), "one");
    drop(own);
    let texts: Vec<_> = bus.messages().take(3).map(|message| message.unwrap().text().into_owned()).collect();
    assert_eq!(texts, ["one", "two", "two"]);
}

/// Waits until a thread of this process sleeps.
fn await_sleep(thread: libc::c_long) {
    let stat = format!("/proc/self/task/{thread}/stat");
    while !std::fs::read_to_string(&stat).unwrap().rsplit(") ").next().unwrap().starts_with('S') {
        std::thread::yield_now();
    }
}

#[test]
fn a_stream_that_is_dropped_wakes_who_waits_at_the_client() {
    let (bus, channel) = open(Options::new());
    let own = bus.subscribe(&format!("{channel}/own")).unwrap();
    assert_eq!(own.try_receive(), Ok(None));
    bus.publish(own.pattern(), "x").unwrap();
    bus.barrier().unwrap();
    let (sender, thread) = std::sync::mpsc::channel();
    let (received, messages) = std::sync::mpsc::channel();
    std::thread::spawn({
        let bus = bus.clone();
        move || {
            // SAFETY: no pointers.
            sender.send(unsafe { libc::syscall(libc::SYS_gettid) }).unwrap();
            received.send(bus.receive().unwrap()).unwrap();
        }
    });
    await_sleep(thread.recv().unwrap());
    drop(own);
    assert_eq!(messages.recv_timeout(PATIENCE * 4).expect("in time").text(), "x");
}

#[test]
fn a_callback_of_a_watch_uses_a_clone_of_its_client() {
    let (bus, channel) = open(Options::new());
    let watched = format!("{channel}/watched");
    let (sender, told) = std::sync::mpsc::channel();
    let clone = bus.clone();
    bus.watch(&watched, move |pattern, wanted| {
        if wanted {
            clone.publish(pattern, "at last").unwrap();
            clone.barrier().unwrap();
            clone.unwatch(pattern).unwrap();
        }
        sender.send((pattern.to_string(), wanted)).unwrap();
    })
    .unwrap();
    let receive = |told: &std::sync::mpsc::Receiver<_>| loop {
        bus.receive_timeout(Duration::from_millis(20)).unwrap();
        if let Ok(news) = told.try_recv() {
            break news;
        }
    };
    assert_eq!(receive(&told), (watched.clone(), false));
    let listener = Options::new().timeout(PATIENCE).open().unwrap();
    listener.subscribe(&watched).unwrap();
    assert_eq!(receive(&told), (watched.clone(), true));
    assert_eq!(listener.receive().unwrap().text(), "at last");
    assert!(told.recv().is_err(), "the callback is dropped");
    assert_eq!(*bus.watch("!here", |_, _| ()).unwrap_err().code(), Code::BadPattern);
}

#[test]
fn a_request_is_replied_to_later() {
    let (bus, channel) = open(Options::new().format(Format::Full));
    let (sender, requests) = std::sync::mpsc::channel();
    bus.serve(&format!("{channel}/later"), move |request| {
        sender.send(request.clone()).unwrap();
        None::<&str>
    })
    .unwrap();
    let asker = Options::new().timeout(PATIENCE).open().unwrap();
    let asking = std::thread::spawn({
        let channel = format!("{channel}/later");
        move || asker.request(&channel, "what?", PATIENCE * 4).unwrap()
    });
    let request = loop {
        bus.receive_timeout(Duration::from_millis(20)).unwrap();
        if let Ok(request) = requests.try_recv() {
            break request;
        }
    };
    assert_eq!(request.text(), "what?");
    request.reply("this").unwrap();
    assert_eq!(asking.join().unwrap().text(), "this");
    drop(bus);
    assert_eq!(*request.reply("again").unwrap_err().code(), Code::Closed);
}

#[test]
fn what_can_be_shared_between_threads_is() {
    fn is_shared<T: Send + Sync + 'static>() {}
    is_shared::<Client>();
    is_shared::<bccn::Subscription>();
    is_shared::<bccn::Request>();
    is_shared::<bccn::Message>();
    is_shared::<bccn::Error>();
}
