//! Parsers of `farwrite-stream`.

use farwrite_stream::Head;

/// A whole message of a stream (P13.1).
pub fn message(bytes: &[u8]) {
    match Head::read(bytes) {
        Ok(head @ (Head::Reset(_) | Head::Stop(_))) => {
            let mut written = [0; 5];
            head.write(&mut written);
            assert_eq!(written, bytes, "a signal has one form");
        }
        Ok(Head::Data) => assert!(bytes.len() > 1, "data without bytes"),
        Ok(Head::Last) => assert!(!bytes.is_empty(), "a message without a head"),
        Err(why) => assert!(!why.is_empty(), "each fault has a name"),
    }
}
