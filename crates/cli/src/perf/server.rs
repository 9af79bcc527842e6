//! The server: it receives and answers what one client sends.

use std::net::SocketAddr;

use farwrite::{MemoryRegion, QueuePair};
use farwrite_connection::{Connection, Keys, Listener, MessageOptions, Messages, OpenedQueuePair};
use farwrite_transfer::Cancel;

use std::process::ExitCode;

use super::args::{PerfArgs, Test};
use super::control::{Answer, Arrived, Ask, MOST_LINE_BYTES, NAME, Setting};
use super::report::ServerReport;
use super::tasks::{Inbox, Receiver, Shared};
use super::{PATIENCE, SLICE, connection_options, hear, tell};
use crate::addresses::Targets;
use crate::console::Console;
use crate::exit::{Exit, Failure};
use crate::{interrupt, key};

/// Serves one client.
pub(super) fn run(args: &PerfArgs, console: &Console) -> Result<ExitCode, Failure> {
    let cancel = interrupt::catch()?;
    let psk = key::needed(args.psk_file.as_deref(), &cancel)?;
    let addr = SocketAddr::new(args.bind, args.port);
    let listener = Listener::bind(addr, &Keys::of_psk(&psk), &connection_options());
    let listener = listener.map_err(|error| Failure::of_connection("listening", &error))?;
    let local = SocketAddr::new(args.bind, listener.local_addr().port());
    console.say(format_args!(
        "waiting for a client at UDP port {}",
        local.port()
    ));
    let targets = Targets::of(local);
    let file = args.psk_file.as_ref();
    let file = file.map(|file| format!(" --psk-file {}", file.display()));
    console.say(format_args!(
        "on the other machine:\n\n  farwrite perf {} {}{}\n",
        args.test.name(),
        targets.first,
        file.unwrap_or_default()
    ));
    targets.show_others(console);
    let connection = loop {
        let accepted = listener.accept(SLICE);
        if let Some(connection) =
            accepted.map_err(|error| Failure::of_connection("listening", &error))?
        {
            break connection;
        }
        cancel.check()?;
    };
    let from = connection.peer_addr();
    let from = from.map_or_else(|| "a client".to_owned(), |addr| addr.to_string());
    console.say(format_args!("a client at {from}"));
    let arrived = serve(args.test, &connection, &cancel)?;
    let report = ServerReport::new(args.test, from, arrived);
    console.say(report.line());
    console.json(&report)?;
    Ok(ExitCode::SUCCESS)
}

fn serve(test: Test, connection: &Connection, cancel: &Cancel) -> Result<Arrived, Failure> {
    let options = farwrite::QpOptions::default();
    let control = connection.accept_queue_pair(Some(NAME), &options, PATIENCE);
    let control = control.map_err(|error| Failure::of_connection("serving a client", &error))?;
    let control =
        control.ok_or_else(|| Failure::new(Exit::Mismatch, "the client is not `farwrite perf`"))?;
    let options = MessageOptions {
        longest_bytes: MOST_LINE_BYTES,
        ..MessageOptions::default()
    };
    let messages = control.into_messages(options);
    let messages = messages.map_err(|error| Failure::of_connection("serving a client", &error))?;
    let mut sum = Arrived::default();
    let mut measured = 0;
    let mut now: Option<Measured> = None;
    loop {
        // The client measures for as long as it wants.
        let ask = hear(&messages, cancel, None)?;
        sum.add(now.take().map(|measured| measured.end()).transpose()?);
        match ask {
            Ask::Open(setting) => {
                if let Err(why) = setting.check(test) {
                    tell(&messages, &Answer::Refused { why: why.clone() });
                    // The client closes the connection when it has read that.
                    let _ = connection.wait_ended(PATIENCE);
                    return Err(Failure::new(Exit::Mismatch, why));
                }
                tell(&messages, &Answer::Accepted);
                now = Some(open(&setting, measured, connection, &messages)?);
                measured += 1;
            }
            Ask::Finish => {
                tell(&messages, &Answer::Finished(sum));
                let _ = connection.wait_ended(PATIENCE);
                return Ok(sum);
            }
        }
    }
}

/// A measurement under way.
struct Measured {
    /// They end when they are dropped.
    _pairs: Vec<OpenedQueuePair>,
    /// `None` for reads, which the endpoint answers alone.
    receiver: Option<Shared<Receiver>>,
}

impl Measured {
    fn end(self) -> Result<Arrived, Failure> {
        let Some(receiver) = self.receiver else {
            return Ok(Arrived::default());
        };
        receiver.stop();
        let held = receiver.lock();
        match &held.error {
            Some(error) => Err(Failure::caused(Exit::Other, "receiving", error)),
            None => Ok(held.work.arrived),
        }
    }
}

fn open(
    setting: &Setting,
    number: u32,
    connection: &Connection,
    messages: &Messages,
) -> Result<Measured, Failure> {
    let failed =
        |error: &farwrite_connection::Error| Failure::of_connection("opening a queue pair", error);
    let invalid = |why: String| Failure::new(Exit::Mismatch, why);
    let options = setting.options().map_err(invalid)?;
    let mut pairs = Vec::new();
    for index in 0..setting.queue_pairs {
        let name = format!("{number}.{index}");
        let pair = connection.accept_queue_pair(Some(&name), &options, PATIENCE);
        let pair = pair.map_err(|error| failed(&error))?;
        pairs.push(
            pair.ok_or_else(|| Failure::new(Exit::Unreachable, "the client opened no queue pair"))?,
        );
    }
    let (mut inboxes, mut regions) = (Vec::new(), Vec::new());
    for pair in &pairs {
        let (buffers, bytes) = (setting.buffers(), setting.max_bytes);
        let is_read = setting.test == Test::ReadBw;
        let made = pair.call(move |endpoint, qp| {
            let zeros = || vec![0_u8; usize::try_from(bytes).unwrap_or(usize::MAX)];
            let buffers: Result<Vec<MemoryRegion>, _> =
                (0..buffers).map(|_| endpoint.register(zeros())).collect();
            let buffers = buffers?;
            let exposed = is_read
                .then(|| endpoint.expose(qp, buffers[0].whole()))
                .transpose()?;
            Ok::<(QueuePair, _, _), farwrite::Error>((qp, buffers, exposed))
        });
        let (qp, buffers, exposed) = made
            .map_err(|error| failed(&error))?
            .map_err(|error| Failure::caused(Exit::Other, "making buffers", &error))?;
        regions.extend(exposed.map(|region| region.0));
        inboxes.push(Inbox::new(qp, buffers));
    }
    let receiver = if setting.test == Test::ReadBw {
        None
    } else {
        let receiver = Shared::new(Receiver {
            inboxes,
            // Twice as many as the client keeps in flight, so that none waits for a receive.
            depth: 2 * usize::from(setting.tx_depth),
            scheme: setting.scheme().map_err(invalid)?.tag(),
            answers: setting.test == Test::WriteLat,
            arrived: Arrived::default(),
        });
        let task = connection.thread().add_task(receiver.task());
        task.map_err(|error| Failure::caused(Exit::Other, "receiving", &error))?;
        Some(receiver)
    };
    tell(messages, &Answer::Opened { regions });
    Ok(Measured {
        _pairs: pairs,
        receiver,
    })
}
