//! The server: it receives and answers what one client sends.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;

use farwrite_connection::{Connection, Listener, MessageOptions, Messages};
use farwrite_transfer::{Cancel, check_device};
use serde_json::json;

use super::args::{PerfArgs, Test, name};
use super::control::{Answer, Arrived, Ask, MOST_LINE_BYTES, NAME, Setting};
use super::data::{Apart, Carrier, Data};
use super::tasks::{Inbox, Receiver, Shared};
use super::{PATIENCE, connection_options, hear, hear_while, tell};
use crate::accepting::Accepting;
use crate::audit::Audit;
use crate::console::Console;
use crate::exit::{Exit, Failure, OrExit};

pub(super) fn run(args: &PerfArgs, console: &Console) -> Result<ExitCode, Failure> {
    if !args.of_client.is_empty() {
        console.warn(format_args!(
            "options that only the client follows, without effect here: {}",
            args.of_client.join(", ")
        ));
    }
    if let Some(device) = &args.device {
        check_device(device)?;
    }
    let (accepting, cancel) = Accepting::prepare(&args.key.accepts(args.code), console)?;
    let addr = SocketAddr::new(args.bind, args.port);
    let listener = Listener::bind(addr, &accepting.keys(), &connection_options());
    let listener = listener.or_fail("listening")?;
    let local = listener.bound_addr();
    console.say(format_args!(
        "waiting for a client at UDP port {}",
        local.port()
    ));
    let command = |end: &str| format!("farwrite perf {} {end}", name(args.test));
    accepting.invite(local, command, console);
    let audit = Arc::new(Audit::start(None, console.clone())?);
    let both = (&cancel, console);
    let (connection, ()) = accepting.first(&listener, &audit, both, |_| Ok(Some(())))?;
    let from = connection.peer_addr();
    let from = from.map_or_else(|| "a client".to_owned(), |addr| addr.to_string());
    console.say(format_args!("a client at {from}"));
    let arrived = serve(args, &connection, &cancel)?;
    console.say(match args.test {
        Test::ReadBw => format!("{from} has read"),
        _ => format!("received {} from {from}", arrived.text()),
    });
    let report = json!({ "test": args.test, "role": "server", "peer": from, "arrived": arrived });
    console.json(&report)?;
    Ok(ExitCode::SUCCESS)
}

fn serve(args: &PerfArgs, connection: &Connection, cancel: &Cancel) -> Result<Arrived, Failure> {
    let options = farwrite::QpOptions::default();
    let control = connection.accept_queue_pair(Some(NAME), &options, PATIENCE);
    let control = control.or_fail("serving a client")?;
    let control =
        control.ok_or_else(|| Failure::new(Exit::Mismatch, "the client is not `farwrite perf`"))?;
    let options = MessageOptions {
        longest_bytes: MOST_LINE_BYTES,
        ..MessageOptions::default()
    };
    let messages = control.into_messages(options).or_fail("serving a client")?;
    let mut sum = Arrived::default();
    let mut measured = 0;
    let mut now: Option<Measured> = None;
    loop {
        // The client measures for as long as it wants.
        let check = || now.as_ref().map_or(Ok(()), |now| now.data.check());
        let ask = hear_while(&messages, cancel, None, check)?;
        sum.add(now.take().map(|measured| measured.end()).transpose()?);
        match ask {
            Ask::Open(setting) => {
                let opened = setting
                    .check(args.test)
                    .and_then(|()| open(&setting, measured, args, connection, &messages, cancel));
                let data = opened.inspect_err(|failure| {
                    let why = failure.to_string();
                    tell(&messages, &Answer::Refused { why });
                    // The client closes the connection when it has read that.
                    let _ = connection.wait_ended(PATIENCE);
                })?;
                now = Some(Measured::begin(&setting, data, &messages)?);
                measured += 1;
            }
            Ask::Connect { .. } => {
                let what = "the client connects queue pairs at the wrong time";
                return Err(Failure::new(Exit::Mismatch, what));
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
    data: Data,
    /// `None` for reads, which the endpoint answers alone.
    receiver: Option<Shared<Receiver>>,
}

impl Measured {
    /// Posts the buffers for the messages of the client, and sends the client the answer that they are ready.
    fn begin(setting: &Setting, data: Data, messages: &Messages) -> Result<Self, Failure> {
        let (mut inboxes, mut regions) = (Vec::new(), Vec::new());
        for &qp in &data.pairs {
            let buffers = (0..setting.buffers())
                .map(|_| data.register(setting.max_bytes, 0))
                .collect::<Result<Vec<_>, _>>()?;
            if setting.test == Test::ReadBw {
                regions.push(data.expose(qp, buffers[0])?.0);
            }
            inboxes.push(Inbox::new(qp, buffers));
        }
        let receiver = if setting.test == Test::ReadBw {
            None
        } else {
            let receiver = Shared::new(Receiver {
                inboxes,
                // Twice as many as the client keeps in flight, so that none waits for a receive.
                depth: 2 * usize::from(setting.tx_depth),
                scheme: setting.scheme()?,
                answers: setting.test == Test::WriteLat,
                arrived: Arrived::default(),
            });
            data.start(&receiver)?;
            Some(receiver)
        };
        tell(messages, &Answer::Opened { regions });
        Ok(Self { data, receiver })
    }

    fn end(self) -> Result<Arrived, Failure> {
        let Some(receiver) = self.receiver else {
            return Ok(Arrived::default());
        };
        receiver.stop();
        let mut held = receiver.lock();
        if let Some(error) = &held.error {
            return Err(Failure::caused(Exit::Other, "receiving", error));
        }
        // The client learns that its last message has arrived before the task runs again.
        held.work.count();
        Ok(held.work.arrived)
    }
}

/// Opens the queue pairs of a setting.
fn open(
    setting: &Setting,
    number: u32,
    args: &PerfArgs,
    connection: &Connection,
    messages: &Messages,
    cancel: &Cancel,
) -> Result<Data, Failure> {
    let has_device = setting.has_device || args.device.is_some();
    if has_device && setting.channels > 1 {
        let what = "an end has an RDMA device, over which `farwrite perf` has one channel: leave out --channels";
        return Err(Failure::new(Exit::Mismatch, what));
    }
    if has_device || setting.has_sockets || args.receive_threads {
        let carrier = match &args.device {
            Some(device) => Carrier::Device(device),
            None if has_device => Carrier::SocketForDevice,
            None => Carrier::Sockets {
                channels: setting.channels,
            },
        };
        let mut apart = Apart::open(args, connection, &carrier)?;
        let mtu = apart.mtu(setting);
        let setting = Setting {
            mtu,
            ..setting.clone()
        };
        let ends = apart.create(&setting)?;
        let answer = Answer::Apart {
            mtu,
            ends,
            has_device,
        };
        tell(messages, &answer);
        return match hear(messages, cancel, Some(PATIENCE))? {
            Ask::Connect { ends } => apart.connect(&ends),
            _ => {
                let what = "the client connects no queue pairs";
                Err(Failure::new(Exit::Mismatch, what))
            }
        };
    }
    tell(messages, &Answer::Accepted);
    let options = setting.options()?;
    let mut pairs = Vec::new();
    for index in 0..setting.queue_pairs {
        let named = format!("{number}.{index}");
        let pair = connection.accept_queue_pair(Some(&named), &options, PATIENCE);
        let pair = pair.or_fail("opening a queue pair")?;
        pairs.push(
            pair.ok_or_else(|| Failure::new(Exit::Unreachable, "the client opened no queue pair"))?,
        );
    }
    Data::connected(args, connection, pairs)
}
