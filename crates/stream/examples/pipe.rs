//! A pipe between two machines: each end prints what the other reads from its standard input.
//!
//! ```text
//! farwrite keygen key                                       # then copy the file to both machines
//! cargo run --example pipe -- key listen '[::]:4792'
//! cargo run --example pipe -- key connect host.example:4792
//! ```

use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;
use std::{env, io, thread};

use farwrite_connection::{ConnectionOptions, Keys, Listener, connect};
use farwrite_keys::{Psk, parse_listen};
use farwrite_stream::{ConnectionExt, Stream, StreamOptions};

/// How long the listener waits for a connection, and each end for the other.
const LIMIT: Duration = Duration::from_secs(600);

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [key, role, addr] = arguments.as_slice() else {
        return Err("usage: pipe KEY-FILE listen|connect HOST:PORT".into());
    };
    let keys = Keys::of_psk(&Psk::load(key.as_ref())?);
    let stream = match role.as_str() {
        "listen" => listen(parse_listen(addr)?, &keys)?,
        "connect" => {
            let connection = connect(addr, &keys, "peer", &ConnectionOptions::default())?;
            connection.open_stream("pipe", &StreamOptions::default(), LIMIT)?
        }
        _ => return Err(format!("{role} is neither `listen` nor `connect`").into()),
    };
    let (mut reader, mut writer) = stream.split();
    let printer = thread::spawn(move || io::copy(&mut reader, &mut io::stdout()));
    io::copy(&mut io::stdin(), &mut writer)?;
    writer.finish();
    printer.join().expect("the printer does not panic")?;
    Ok(writer.close()?)
}

/// Waits for the stream of the first peer that connects.
fn listen(addr: SocketAddr, keys: &Keys) -> Result<Stream, Box<dyn Error>> {
    let listener = Listener::bind(addr, keys, &ConnectionOptions::default())?;
    eprintln!("listening at {}", listener.local_addr());
    let connection = listener.accept(LIMIT)?.ok_or("nobody has connected")?;
    let accepted = connection.accept_stream(Some("pipe"), &StreamOptions::default(), LIMIT)?;
    let (_name, stream) = accepted.ok_or("the peer has opened no stream")?;
    eprintln!("connected to {}", connection.peer());
    Ok(stream)
}
