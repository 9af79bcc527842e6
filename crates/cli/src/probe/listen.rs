//! Answers probes.

use std::sync::Arc;

use farwrite::ReservedPort;
use farwrite_probe as probe;
use farwrite_session::shown;
use farwrite_transfer::{Admission, Cancel, Client};

use super::{ProbeArgs, failure};
use crate::addresses::Targets;
use crate::console::Console;
use crate::exit::Failure;
use crate::recv::listen;
use crate::{interrupt, key};

/// Answers probes until Ctrl-C.
pub(super) fn run(args: &ProbeArgs, console: &Console) -> Result<(), Failure> {
    let cancel = interrupt::catch()?;
    let psk = key::needed(args.psk_file.as_deref(), &cancel)?;
    let (listener, port) = listen(args.listen.flatten())?;
    let local = listener.local_addr();
    let targets = Targets::of(local);
    console.say(format_args!("listening on {} (TCP and UDP)", shown(&local)));
    let file = args.psk_file.as_ref();
    let file = file.map(|file| format!(" --psk-file {}", file.display()));
    console.say(format_args!(
        "on the other machine:\n\n  farwrite probe {}{}\n",
        targets.first,
        file.unwrap_or_default()
    ));
    targets.show_others(console);
    let admission = Admission::start(listener, &psk, 1, Arc::new(console.clone()))?;
    serve(args, &admission, &port, &cancel, console)
}

fn serve(
    args: &ProbeArgs,
    admission: &Admission,
    port: &ReservedPort,
    cancel: &Cancel,
    console: &Console,
) -> Result<(), Failure> {
    loop {
        let (channel, place) = admission.wait(cancel)?;
        let client = Client::accept(channel, cancel).map_err(Failure::from);
        let ended = client.and_then(|client| match client.wants_probe() {
            true => answer(client, port, cancel, console),
            false => {
                let from = client.addr();
                let error = probe::Error::NotAProbe { from };
                Err(client.refuse(&error.to_string()).into())
            }
        });
        if args.once {
            return ended;
        }
        cancel.check()?;
        if let Err(failure) = ended {
            console.warn(failure);
        }
        drop(place);
    }
}

/// Answers one prober, whose hello has arrived.
pub(crate) fn answer(
    client: Client,
    port: &ReservedPort,
    cancel: &Cancel,
    console: &Console,
) -> Result<(), Failure> {
    let from = client.addr();
    console.say(format_args!("a probe from {from}"));
    let answered = probe::answer(client.into_channel(), Some(port), &|| cancel.is_set());
    let answered = answered.map_err(|error| failure("answering a probe", &error))?;
    console.say(format_args!(
        "answered {from}: {} packets of {} trials arrived",
        answered.packets, answered.trials
    ));
    if answered.strangers > 0 {
        console.warn(format_args!(
            "{} datagrams that came meanwhile were not of the probe",
            answered.strangers
        ));
    }
    Ok(())
}
