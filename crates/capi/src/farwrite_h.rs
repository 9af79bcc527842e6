//! `farwrite.h`: connections, messages that are repaired, byte streams, and what `sdr.h` does not have.
#![allow(unsafe_code, non_camel_case_types)]

use std::ffi::{c_char, c_int, c_void};

use farwrite::Outcome;

use crate::connections::{Connected, Keys, Listening, Opened, keys};
use crate::failure::{self, Failure};
use crate::ffi::{CEnum, Char, Grows, In, Out, Text, c_header, copy_in};
use crate::reliable::{Message, Terms};
use crate::sdr::sdr_errcode;
use crate::statistics;
use crate::streams::Streaming;
use crate::table::{self, number};

/// Bytes that a stream copies at a time.
const COPY_BYTES: usize = 1 << 16;

/// The keys of a connection, and whether its packets have no ICRC.
fn read_keys(attr: In<farwrite_keys>) -> Result<(Keys, bool), Failure> {
    let files = attr.read_known()?;
    let files = files.ok_or_else(|| Failure::new("keys is NULL"))?;
    let keys = keys(
        files.identity_file.read_if_any(),
        files.known_peers_file.read_if_any(),
        files.psk_file.read_if_any(),
    )?;
    Ok((keys, files.omit_icrc != 0))
}

fn terms(attr: In<farwrite_message_attr>) -> Result<Terms, Failure> {
    let attr = attr.read_known()?;
    Ok(attr.map_or_else(Terms::default, |attr| Terms {
        scheme: attr.scheme.read_if_any(),
        deadline_ms: attr.deadline_ms,
        accepts_partial: attr.accept_partial != 0,
    }))
}

macro_rules! grows {
    ($($struct:ident: $first_bytes:literal;)*) => {
        $(
            // SAFETY: the struct consists of numbers and pointers, of which `size` is the first.
            unsafe impl Grows for $struct {
                const NAME: &'static str = stringify!($struct);
                const FIRST_BYTES: usize = $first_bytes;
            }
        )*
    };
}

// The sizes of the first version, which never change.
grows! {
    farwrite_keys: 32;
    farwrite_message_attr: 24;
    farwrite_result: 32;
    farwrite_path_statistics: 64;
    farwrite_transfer_statistics: 88;
}

c_header! {
    opaque farwrite_listener;
    opaque farwrite_connection;
    opaque farwrite_qp;
    opaque farwrite_message;
    opaque farwrite_stream;

    enum farwrite_outcome {
        FARWRITE_WHOLE,
        FARWRITE_PARTIAL,
        FARWRITE_FAILED,
    }

    struct farwrite_keys {
        size: usize,
        identity_file: Text,
        known_peers_file: Text,
        psk_file: Text,
        omit_icrc: u64,
    }
    struct farwrite_message_attr {
        size: usize,
        scheme: Text,
        deadline_ms: u32,
        accept_partial: u32,
    }
    struct farwrite_result {
        size: usize,
        outcome: CEnum<farwrite_outcome>,
        length: u64,
        arrived_bytes: u64,
    }
    struct farwrite_path_statistics {
        size: usize,
        rtt_ns: u64,
        pace_bps: u64,
        in_flight_bytes: u64,
        sent_packets: u64,
        sent_bytes: u64,
        reported_bytes: u64,
        delivered_bytes: u64,
    }
    struct farwrite_transfer_statistics {
        size: usize,
        sent_chunks: u64,
        resent_chunks: u64,
        received_packets: u64,
        received_bytes: u64,
        duplicate_packets: u64,
        rebuilt_chunks: u64,
        send_judged_chunks: u64,
        send_lost_chunks: u64,
        receive_judged_chunks: u64,
        receive_lost_chunks: u64,
    }

    fn farwrite_version() -> *const c_char {
        Ok(concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast())
    }
    fn farwrite_last_error() -> *const c_char {
        Ok(failure::last_text())
    }
    fn farwrite_last_code() -> CEnum<sdr_errcode> {
        Ok(CEnum::new(failure::last_code()))
    }
    fn farwrite_listen(addr: Text, keys: In<farwrite_keys>) -> *mut farwrite_listener {
        let (keys, omit_icrc) = read_keys(keys)?;
        let listening = Listening::new(&addr.read("addr")?, &keys, omit_icrc)?;
        table::publish(listening)
    }
    fn farwrite_listener_port(listener: *mut farwrite_listener, port: Out<u32>) -> c_int {
        port.check("port")?;
        let listening = table::find::<Listening>(number(listener))?;
        port.write(listening.0.local_addr().port().into());
        Ok(())
    }
    fn farwrite_listener_fd(listener: *mut farwrite_listener, fd: Out<c_int>) -> c_int {
        fd.check("fd")?;
        fd.write(table::find::<Listening>(number(listener))?.descriptor()?);
        Ok(())
    }
    fn farwrite_listener_close(listener: *mut farwrite_listener) -> c_int {
        table::remove::<Listening>(number(listener))?.0.close();
        Ok(())
    }
    fn farwrite_accept(listener: *mut farwrite_listener, timeout_ms: u32) -> *mut farwrite_connection {
        let listening = table::find::<Listening>(number(listener))?;
        let connected = listening.accept(timeout_ms)?;
        table::publish(connected)
    }
    fn farwrite_connect(addr: Text, keys: In<farwrite_keys>, peer: Text) -> *mut farwrite_connection {
        let peer = peer.read_if_any().unwrap_or_default();
        let (keys, omit_icrc) = read_keys(keys)?;
        let connected = Connected::new(&addr.read("addr")?, &keys, omit_icrc, &peer)?;
        table::publish(connected)
    }
    fn farwrite_peer_name(
        connection: *mut farwrite_connection,
        name: Out<Char>,
        size: usize,
    ) -> c_int {
        let connected = table::find::<Connected>(number(connection))?;
        let mut text = connected.0.peer().name().unwrap_or_default().as_bytes().to_vec();
        text.push(0);
        if text.len() > size {
            return Err(Failure::new(format!("size = {size}: the name takes {} bytes", text.len())));
        }
        name.write_bytes(&text, "name")
    }
    fn farwrite_connection_fd(connection: *mut farwrite_connection, fd: Out<c_int>) -> c_int {
        fd.check("fd")?;
        fd.write(table::find::<Connected>(number(connection))?.descriptor()?);
        Ok(())
    }
    fn farwrite_connection_statistics(
        connection: *mut farwrite_connection,
        statistics: Out<farwrite_path_statistics>,
    ) -> c_int {
        statistics.check("statistics")?;
        statistics.check_size()?;
        let stats = table::find::<Connected>(number(connection))?.statistics()?;
        statistics.write_known(|size| statistics::of_path(size, &stats))
    }
    fn farwrite_connection_close(connection: *mut farwrite_connection) -> c_int {
        table::remove::<Connected>(number(connection))?.0.close();
        Ok(())
    }
    fn farwrite_qp_open(
        connection: *mut farwrite_connection,
        name: Text,
        timeout_ms: u32,
    ) -> *mut farwrite_qp {
        let connected = table::find::<Connected>(number(connection))?;
        let opened = connected.open_qp(&name.read("name")?, timeout_ms)?;
        table::publish(opened)
    }
    fn farwrite_qp_accept(
        connection: *mut farwrite_connection,
        name: Text,
        timeout_ms: u32,
    ) -> *mut farwrite_qp {
        let connected = table::find::<Connected>(number(connection))?;
        let opened = connected.accept_qp(name.read_if_any().as_deref(), timeout_ms)?;
        table::publish(opened)
    }
    fn farwrite_qp_statistics(
        qp: *mut farwrite_qp,
        statistics: Out<farwrite_transfer_statistics>,
    ) -> c_int {
        statistics.check("statistics")?;
        statistics.check_size()?;
        let stats = table::find::<Opened>(number(qp))?.statistics()?;
        statistics.write_known(|size| statistics::of_queue_pair(size, &stats))
    }
    fn farwrite_qp_close(qp: *mut farwrite_qp) -> c_int {
        table::remove::<Opened>(number(qp))?.0.close();
        Ok(())
    }
    fn farwrite_send(
        qp: *mut farwrite_qp,
        bytes: *const c_void,
        length: usize,
        attr: In<farwrite_message_attr>,
        message: Out<*mut farwrite_message>,
    ) -> c_int {
        message.check("message")?;
        let opened = table::find::<Opened>(number(qp))?;
        let sent = Message::send(&opened, bytes.cast_mut(), length, &terms(attr)?)?;
        message.write(table::publish(sent)?);
        Ok(())
    }
    fn farwrite_recv(
        qp: *mut farwrite_qp,
        buffer: *mut c_void,
        length: usize,
        attr: In<farwrite_message_attr>,
        message: Out<*mut farwrite_message>,
    ) -> c_int {
        message.check("message")?;
        let opened = table::find::<Opened>(number(qp))?;
        let posted = Message::receive(&opened, buffer, length, &terms(attr)?)?;
        message.write(table::publish(posted)?);
        Ok(())
    }
    fn farwrite_wait(
        message: *mut farwrite_message,
        timeout_ms: u32,
        result: Out<farwrite_result>,
    ) -> c_int {
        result.check_size()?;
        let ending = table::find::<Message>(number(message))?.wait(timeout_ms)?;
        let outcome = match ending.outcome {
            Outcome::Whole => farwrite_outcome::FARWRITE_WHOLE,
            Outcome::Partial => farwrite_outcome::FARWRITE_PARTIAL,
            Outcome::Failed => farwrite_outcome::FARWRITE_FAILED,
        };
        result.write_known(|size| farwrite_result {
            size,
            outcome: CEnum::new(outcome as u32),
            length: ending.length,
            arrived_bytes: ending.arrived_bytes,
        })
    }
    fn farwrite_message_fd(message: *mut farwrite_message, fd: Out<c_int>) -> c_int {
        fd.check("fd")?;
        fd.write(table::find::<Message>(number(message))?.descriptor()?);
        Ok(())
    }
    fn farwrite_bitmap(
        message: *mut farwrite_message,
        bitmap: Out<*mut u8>,
        num_bytes: Out<usize>,
        chunk_bytes: Out<u32>,
    ) -> c_int {
        bitmap.check("bitmap")?;
        let (bits, bytes, chunk) = table::find::<Message>(number(message))?.bitmap()?;
        bitmap.write(bits);
        num_bytes.write(bytes);
        chunk_bytes.write(chunk);
        Ok(())
    }
    fn farwrite_message_close(message: *mut farwrite_message) -> c_int {
        table::remove::<Message>(number(message))?.close()
    }
    fn farwrite_stream_open(
        connection: *mut farwrite_connection,
        name: Text,
        timeout_ms: u32,
    ) -> *mut farwrite_stream {
        let connected = table::find::<Connected>(number(connection))?;
        let opened = Streaming::open(&connected, &name.read("name")?, timeout_ms)?;
        table::publish(opened)
    }
    fn farwrite_stream_accept(
        connection: *mut farwrite_connection,
        name: Text,
        timeout_ms: u32,
    ) -> *mut farwrite_stream {
        let connected = table::find::<Connected>(number(connection))?;
        let accepted = Streaming::accept(&connected, name.read_if_any().as_deref(), timeout_ms)?;
        table::publish(accepted)
    }
    fn farwrite_stream_read(
        stream: *mut farwrite_stream,
        buffer: Out<c_void>,
        size: usize,
        timeout_ms: u32,
        length: Out<usize>,
    ) -> c_int {
        length.check("length")?;
        buffer.check("buffer")?;
        let streaming = table::find::<Streaming>(number(stream))?;
        let mut bytes = vec![0; size.min(COPY_BYTES)];
        let count = streaming.read(&mut bytes, timeout_ms)?;
        buffer.write_bytes(&bytes[..count], "buffer")?;
        length.write(count);
        Ok(())
    }
    fn farwrite_stream_write(
        stream: *mut farwrite_stream,
        bytes: *const c_void,
        size: usize,
        timeout_ms: u32,
        length: Out<usize>,
    ) -> c_int {
        length.check("length")?;
        let streaming = table::find::<Streaming>(number(stream))?;
        let bytes = copy_in(bytes, size.min(COPY_BYTES))?;
        length.write(streaming.write(&bytes, timeout_ms)?);
        Ok(())
    }
    fn farwrite_stream_read_fd(stream: *mut farwrite_stream, fd: Out<c_int>) -> c_int {
        fd.check("fd")?;
        fd.write(table::find::<Streaming>(number(stream))?.read_descriptor()?);
        Ok(())
    }
    fn farwrite_stream_write_fd(stream: *mut farwrite_stream, fd: Out<c_int>) -> c_int {
        fd.check("fd")?;
        fd.write(table::find::<Streaming>(number(stream))?.write_descriptor()?);
        Ok(())
    }
    fn farwrite_stream_statistics(
        stream: *mut farwrite_stream,
        statistics: Out<farwrite_transfer_statistics>,
    ) -> c_int {
        statistics.check("statistics")?;
        statistics.check_size()?;
        let stats = table::find::<Streaming>(number(stream))?.statistics()?;
        statistics.write_known(|size| statistics::of_queue_pair(size, &stats))
    }
    fn farwrite_stream_reset(stream: *mut farwrite_stream, code: u32) -> c_int {
        table::find::<Streaming>(number(stream))?.reset(code);
        Ok(())
    }
    fn farwrite_stream_reset_code(stream: *mut farwrite_stream, code: Out<u32>) -> c_int {
        code.check("code")?;
        code.write(table::find::<Streaming>(number(stream))?.peer_code()?);
        Ok(())
    }
    fn farwrite_stream_finish(stream: *mut farwrite_stream, timeout_ms: u32) -> c_int {
        table::find::<Streaming>(number(stream))?.finish(timeout_ms)
    }
    fn farwrite_stream_close(stream: *mut farwrite_stream) -> c_int {
        table::remove::<Streaming>(number(stream))?.close();
        Ok(())
    }
}
