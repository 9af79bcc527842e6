//! Targets of the http crate.

use farwrite_http::{Exchange, MAX_HEAD_BYTES, Page, Wants};

/// What a client sends. The first byte selects the size of the pieces in which it arrives; the answer
/// does not depend on it. Each connection has one answer, and ends after a bounded number of bytes.
pub fn exchange(data: &[u8]) {
    let Some((piece, sent)) = data.split_first() else {
        return;
    };
    let whole = answer(sent, sent.len().max(1));
    assert_eq!(answer(sent, usize::from(*piece) + 1), whole);
    let Some(answer) = whole else {
        assert!(sent.len() < MAX_HEAD_BYTES);
        return;
    };
    let answer = String::from_utf8(answer).expect("text");
    let (head, body) = answer.split_once("\r\n\r\n").expect("an empty line");
    assert!(head.contains("\r\nConnection: close"));
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("Content-Length: "));
    let length: usize = length.expect("a length").parse().expect("a number");
    if sent.starts_with(b"HEAD ") {
        assert!(body.is_empty() && length > 0);
    } else {
        assert_eq!(body.len(), length);
    }
    if head.starts_with("HTTP/1.1 200 ") {
        assert!(sent.starts_with(b"GET ") || sent.starts_with(b"HEAD "));
    }
}

/// The answer to bytes that arrive in pieces; `None` if they are no whole head.
fn answer(sent: &[u8], piece: usize) -> Option<Vec<u8>> {
    let page = || Page {
        content_type: "text/plain",
        text: "count 7\n".to_owned(),
    };
    let mut exchange = Exchange::default();
    let mut answer = Vec::new();
    for piece in sent.chunks(piece) {
        exchange.received(piece, page);
        // Less than what waits leaves at once.
        while exchange.wants() == Wants::Write {
            let unsent = exchange.unsent();
            let count = unsent.len().min(100);
            answer.extend_from_slice(&unsent[..count]);
            exchange.sent(count);
        }
    }
    exchange.received(&[], page);
    assert_eq!(exchange.wants(), Wants::Close);
    (!answer.is_empty()).then_some(answer)
}
