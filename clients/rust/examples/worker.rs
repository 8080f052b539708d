//! A worker: replies to requests on jobs/upper with the text in capitals, counts them in its heartbeat, and stops when
//! somebody sends it "stop".
//!
//!     cargo run --example worker &
//!     bccn req jobs/upper 'hello there'

use std::process::ExitCode;
use std::time::Duration;

use bccn::{Format, Options, Result};

/// Between heartbeats.
const BEAT: Duration = Duration::from_secs(5);

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
    let mut options = Options::new()
        .format(Format::Full) // shows who asks
        .wait(Duration::from_secs(10))
        .on_notice(|notice| eprintln!("worker: {}", notice.text));
    if let Some(address) = address {
        options = options.path(address);
    }
    let bus = options.open()?;
    bus.heartbeat(BEAT, "ready")?;
    bus.subscribe("jobs/upper")?;
    println!("{} is ready", bus.name());

    let mut done = 0;
    for message in bus.messages() {
        let message = message?;
        if message.channel.starts_with('!') && message.payload == b"stop" {
            break;
        }
        if let Some(request) = message.request().filter(|request| request.channel == "jobs/upper") {
            request.reply(request.payload.to_ascii_uppercase())?;
            done += 1;
            bus.heartbeat(BEAT, &format!("{done} done"))?;
        }
    }
    println!("{done} done");
    bus.barrier() // everything has arrived
}
