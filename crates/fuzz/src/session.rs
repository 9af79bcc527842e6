//! Targets of the session crate.

use std::sync::{Arc, LazyLock};

use farwrite_files::Message;
use farwrite_session::fuzzing::{Failed, Handshake, Keys, RecordOpener, RecordSealer};
use farwrite_session::{
    Accepted, Code, HostPort, Identity, KnownPeers, OneTimeCode, Psk, parse_listen, shown,
};

/// The same in each run.
static KEY: LazyLock<Psk> = LazyLock::new(|| {
    let text = "farwrite-psk-1:gaytemzugu3doobzmfrggzdfmztwq2lknnwg23tpobyxe43uov3n3zphea";
    text.parse().expect("a key")
});

/// A responder that accepts the key and identities.
static ACCEPTED: LazyLock<Arc<Accepted>> = LazyLock::new(|| {
    let identity = Identity::generate().expect("randomness");
    Arc::new(Accepted {
        psk: Some(KEY.clone()),
        identity: Some((identity, KnownPeers::default())),
        code: None,
    })
});

/// Length of the initiator's preamble and first message.
const FIRST_BYTES: usize = 58;
/// Greatest length of an answer to a refused peer: a preamble and a status.
const REFUSAL_BYTES: usize = 11;

/// Bytes for a responder, in pieces whose length is the first byte. Without the key, it accepts none of
/// them. Then the same bytes change the first message of an initiator that has the key: the responder
/// accepts only an unchanged message.
pub fn handshake(data: &[u8]) {
    let Some((&piece_bytes, rest)) = data.split_first() else {
        return;
    };
    let mut responder = Handshake::respond(ACCEPTED.clone());
    for piece in rest.chunks(usize::from(piece_bytes).max(1)) {
        if let Err(failed) = take(&mut responder, piece, false) {
            assert!(failed.answer.len() <= REFUSAL_BYTES);
            assert_eq!(responder.wants(), 0);
            break;
        }
    }
    let (_, mut first) = Handshake::initiate(&(&*KEY).into()).expect("own parameters");
    assert_eq!(first.len(), FIRST_BYTES);
    for (byte, change) in first.iter_mut().zip(rest) {
        *byte ^= change;
    }
    let is_unchanged = rest.iter().take(FIRST_BYTES).all(|change| *change == 0);
    let accepted = take(
        &mut Handshake::respond(ACCEPTED.clone()),
        &first,
        is_unchanged,
    )
    // A change of the pattern makes the responder wait for a longer message.
    .is_ok_and(|has_answered| has_answered);
    assert_eq!(accepted, is_unchanged);
}

/// Bytes for a responder that shows a code, after the preamble that asks for it. Nobody is accepted, and a
/// guess uses the code up. The same bytes as a text are a code only if they are its digits.
pub fn code(data: &[u8]) {
    let code: Code = "1234-5671".parse().expect("a code");
    let accepted = Accepted {
        code: Some(Arc::new(OneTimeCode::new(code))),
        ..Accepted::default()
    };
    let mut responder = Handshake::respond(Arc::new(accepted));
    let mut rest = &[b"FARWRITE\x02\x03", data].concat()[..];
    if let Ok(progress) = responder.receive(&mut rest) {
        assert!(progress.agreed.is_none() && progress.send.len() <= REFUSAL_BYTES + 33);
    }
    let text = String::from_utf8_lossy(data);
    if let Ok(code) = text.parse::<Code>() {
        let digits = |text: &str| {
            text.chars()
                .filter(char::is_ascii_digit)
                .collect::<String>()
        };
        assert_eq!(digits(&code.to_text()), digits(&text));
    }
}

/// Gives bytes to an end of a handshake. It may answer only if it `accepts` the peer. Returns whether it
/// has answered.
fn take(end: &mut Handshake, bytes: &[u8], accepts: bool) -> Result<bool, Failed> {
    let mut rest = bytes;
    let progress = end.receive(&mut rest)?;
    assert!(rest.is_empty(), "the proof is still to come");
    assert_eq!(!progress.send.is_empty(), accepts);
    assert!(
        progress.agreed.is_none(),
        "nobody proved that they hold the key"
    );
    Ok(accepts)
}

/// Bytes for an initiator, as an answer to its first message. It accepts none of them.
pub fn answer(data: &[u8]) {
    let (mut initiator, _) = Handshake::initiate(&(&*KEY).into()).expect("own parameters");
    let mut rest = data;
    if let Ok(progress) = initiator.receive(&mut rest) {
        assert!(progress.agreed.is_none() && progress.send.is_empty());
        assert!(rest.is_empty() && initiator.wants() > 0);
    }
}

/// Ciphertext that was not made with the keys of the channel. The reader returns none of it.
pub fn channel_records(data: &[u8]) {
    let (_, mut incoming) = channel();
    let mut rest = data;
    let received = incoming.receive::<Message>(&mut rest);
    assert!(matches!(received, Ok(None) | Err(_)));
}

/// Records of a peer that has the keys: for each, a length byte and that number of bytes of any content.
/// A message that was read can be sent, and reads the same again.
pub fn channel_messages(data: &[u8]) {
    let (mut outgoing, mut incoming) = channel();
    let mut sealed = Vec::new();
    let mut rest = data;
    while let [length, more @ ..] = rest {
        let (plain, after) = more.split_at(more.len().min(usize::from(*length)));
        outgoing
            .seal_record(plain, &mut sealed)
            .expect("a short record");
        rest = after;
    }
    let mut bytes = &sealed[..];
    while let Ok(Some(read)) = incoming.receive::<Message>(&mut bytes) {
        sends_the_same(&read);
    }
}

/// A message that was read can be sent, and reads the same again. The exception is a long message whose
/// cleaned texts are longer than the limit.
pub(crate) fn sends_the_same(read: &Message) {
    let (mut outgoing, mut incoming) = channel();
    let Ok(sealed) = outgoing.seal(read) else {
        return;
    };
    let again = incoming
        .receive::<Message>(&mut &sealed[..])
        .expect("own records");
    assert_eq!(again.as_ref(), Some(read));
    assert!(incoming.is_between_messages());
}

/// A new channel. Its keys are those of the others, since a handshake takes most of the time of a short input.
fn channel() -> (RecordSealer, RecordOpener) {
    static KEYS: LazyLock<Keys> =
        LazyLock::new(|| Keys::agree(&KEY).expect("the same key at both ends"));
    KEYS.records()
}

/// The text form of a key (P12.2). A key that was read is written the same, except for case and for blanks
/// around it.
pub fn psk(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Ok(key) = text.parse::<Psk>() {
        assert!(key.to_text().eq_ignore_ascii_case(text.trim()));
    }
}

/// An address to connect to or to listen on. An address that was read is written so that it reads the same.
pub fn address(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Ok(to) = text.parse::<HostPort>() {
        assert_eq!(to.to_string().parse(), Ok(to));
    }
    if let Ok(addr) = parse_listen(&text) {
        assert_eq!(parse_listen(&shown(&addr).to_string()), Ok(addr));
    }
}
