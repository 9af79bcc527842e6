//! Two machines exchange messages. docs/connections.md shows how to run this.

use std::error::Error;
use std::path::Path;
use std::time::Duration;

use farwrite::QpOptions;
use farwrite_connection::{
    Connection, ConnectionOptions, Keys, Listener, MessageOptions, Messages, connect,
};
use farwrite_keys::{Identity, KnownPeers, parse_listen};

const LIMIT: Duration = Duration::from_secs(30);

fn main() {
    if let Err(error) = run() {
        eprintln!("hello: {error}");
        std::process::exit(1);
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let [own, known, rest @ ..] = &args[..] else {
        return Err("want: KEY PEERS listen ADDR:PORT, or KEY PEERS connect HOST:PORT NAME".into());
    };
    let identity = Identity::load(Path::new(own))?;
    let keys = Keys::of_identity(identity, KnownPeers::load(Path::new(known))?);
    let options = ConnectionOptions::default();
    match rest {
        ["listen", addr] => {
            let listener = Listener::bind(parse_listen(addr)?, &keys, &options)?;
            while let Some(connection) = listener.accept(LIMIT)? {
                greet(&connection, false)?;
            }
        }
        ["connect", addr, name] => greet(&connect(addr, &keys, name, &options)?, true)?,
        _ => return Err("want `listen ADDR:PORT` or `connect HOST:PORT NAME`".into()),
    }
    Ok(())
}

/// One end opens the queue pair "greetings", and the other accepts it.
fn greet(connection: &Connection, opens: bool) -> Result<(), Box<dyn Error>> {
    let shape = QpOptions::default();
    let pair = if opens {
        connection.open_queue_pair("greetings", shape, LIMIT)?
    } else {
        let accepted = connection.accept_queue_pair(Some("greetings"), &shape, LIMIT)?;
        accepted.ok_or("the peer has opened nothing")?
    };
    let messages: Messages = pair.into_messages(MessageOptions::default())?;
    let sent = messages.send(format!("hello, {}", connection.peer()));
    if let Some(text) = messages.receive(LIMIT)? {
        println!("{}: {}", connection.peer(), String::from_utf8_lossy(&text));
    }
    sent.wait(LIMIT)?;
    Ok(())
}
