//! A worker: answers requests on jobs/upper with the text in capitals, counts them in its heartbeat, and stops when
//! somebody sends it "stop".
//!
//!     cargo run --example worker &
//!     bccn req jobs/upper 'hello there'

use std::process::ExitCode;
use std::time::Duration;

use bccn::{Options, Result};

/// Seconds between heartbeats.
const BEAT: u32 = 5;

fn main() -> ExitCode {
    match run(std::env::args().nth(1).as_deref()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("worker: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(address: Option<&str>) -> Result<()> {
    let mut bus = Options::new()
        .full(true) // shows who asks
        .wait(Duration::from_secs(10))
        .on_notice(|notice| eprintln!("worker: {}", notice.text))
        .open(address)?;
    bus.heartbeat_start(BEAT, "ready")?;
    bus.subscribe("jobs/upper")?;
    println!("{} is ready", bus.name());

    let mut done = 0;
    loop {
        let message = bus.recv()?;
        if message.channel.starts_with('!') && message.payload == b"stop" {
            break;
        }
        if message.channel != "jobs/upper" {
            continue;
        }
        if let Some(request) = message.request() {
            bus.reply(&request, request.question.to_ascii_uppercase())?;
            done += 1;
            bus.heartbeat_start(BEAT, &format!("{done} done"))?;
        }
    }
    println!("{done} done");
    bus.barrier() // everything has arrived
}
