//! One request and its answer, without sockets (HTTP/1.1, RFC 9112).

/// The most bytes of a request line and header fields together. A longer request is refused with
/// status 431.
pub const MAX_HEAD_BYTES: usize = 8 << 10;
/// The most bytes that are read after the answer, and thrown away. A socket that is closed while it
/// has unread bytes resets the connection, and the client may lose the answer.
const MAX_DISCARDED_BYTES: usize = 64 << 10;

/// What is answered to GET.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// Value of the field `Content-Type`.
    pub content_type: &'static str,
    /// The body.
    pub text: String,
}

/// What an exchange waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wants {
    /// Bytes of the client: [`Exchange::received`].
    Read,
    /// That bytes leave: [`Exchange::unsent`], [`Exchange::sent`].
    Write,
    /// Nothing: the connection can be closed.
    Close,
}

/// One connection: reads one request, answers it, and waits until the client closes.
#[derive(Debug)]
pub struct Exchange(ExchangeState);

#[derive(Debug)]
enum ExchangeState {
    /// The bytes of the head until now, at most [`MAX_HEAD_BYTES`].
    Reading(Vec<u8>),
    /// The answer, and how much of it has left.
    Sending(Vec<u8>, usize),
    /// The number of bytes that came after the head.
    Discarding(usize),
    Done,
}

impl Default for Exchange {
    fn default() -> Self {
        Self(ExchangeState::Reading(Vec::new()))
    }
}

impl Exchange {
    /// What is to be done next.
    #[must_use]
    pub fn wants(&self) -> Wants {
        match self.0 {
            ExchangeState::Reading(_) | ExchangeState::Discarding(_) => Wants::Read,
            ExchangeState::Sending(..) => Wants::Write,
            ExchangeState::Done => Wants::Close,
        }
    }

    /// Takes bytes of the client. No bytes mean that it sends no more. `page` is called if the bytes
    /// complete a request for the page.
    pub fn received(&mut self, bytes: &[u8], page: impl FnOnce() -> Page) {
        match &mut self.0 {
            ExchangeState::Reading(_) | ExchangeState::Discarding(_) if bytes.is_empty() => {
                self.0 = ExchangeState::Done;
            }
            ExchangeState::Reading(head) => {
                let room = MAX_HEAD_BYTES - head.len();
                let searched = head.len().saturating_sub(2);
                head.extend_from_slice(&bytes[..room.min(bytes.len())]);
                let answer = match head_ends(&head[searched..]) {
                    true => answer(head, page),
                    false if head.len() == MAX_HEAD_BYTES => refusal(Status::TooLong, head),
                    false => return,
                };
                self.0 = ExchangeState::Sending(answer, 0);
            }
            ExchangeState::Discarding(count) => {
                *count += bytes.len();
                if *count > MAX_DISCARDED_BYTES {
                    self.0 = ExchangeState::Done;
                }
            }
            ExchangeState::Sending(..) | ExchangeState::Done => {}
        }
    }

    /// The bytes that are to leave.
    #[must_use]
    pub fn unsent(&self) -> &[u8] {
        match &self.0 {
            ExchangeState::Sending(answer, sent) => &answer[*sent..],
            _ => &[],
        }
    }

    /// Notes that the first `count` bytes of [`Self::unsent`] have left.
    pub fn sent(&mut self, count: usize) {
        if let ExchangeState::Sending(answer, sent) = &mut self.0 {
            *sent = answer.len().min(*sent + count);
            if *sent == answer.len() {
                self.0 = ExchangeState::Discarding(0);
            }
        }
    }
}

/// Whether the bytes contain the end of a head: a line end, and an empty line. A line may end
/// without a carriage return (RFC 9112 2.2).
fn head_ends(bytes: &[u8]) -> bool {
    let has = |end: &[u8]| bytes.windows(end.len()).any(|part| part == end);
    has(b"\n\r\n") || has(b"\n\n")
}

/// The status of a request that gets no page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Malformed,
    Method,
    TooLong,
    Version,
}

/// Checks the request line. Header fields need no check: none of them changes the answer.
fn check(line: &[u8]) -> Result<(), Status> {
    let line = str::from_utf8(line).map_err(|_| Status::Malformed)?;
    let words: Vec<&str> = line.trim_end_matches('\r').splitn(4, ' ').collect();
    let [method, target, version] = words[..] else {
        return Err(Status::Malformed);
    };
    let is_method = !method.is_empty() && method.bytes().all(|byte| byte.is_ascii_uppercase());
    if !is_method || target.is_empty() || !version.starts_with("HTTP/") {
        return Err(Status::Malformed);
    }
    match (method, version) {
        ("GET" | "HEAD", "HTTP/1.0" | "HTTP/1.1") => Ok(()),
        (_, "HTTP/1.0" | "HTTP/1.1") => Err(Status::Method),
        _ => Err(Status::Version),
    }
}

fn answer(head: &[u8], page: impl FnOnce() -> Page) -> Vec<u8> {
    let line = head.split(|byte| *byte == b'\n').next();
    match check(line.unwrap_or_default()) {
        Ok(()) => response("200 OK", "", &page(), head),
        Err(status) => refusal(status, head),
    }
}

fn refusal(status: Status, head: &[u8]) -> Vec<u8> {
    let (status, fields, what) = match status {
        Status::Malformed => (
            "400 Bad Request",
            "",
            "want a request such as GET / HTTP/1.1",
        ),
        Status::Method => (
            "405 Method Not Allowed",
            "Allow: GET, HEAD\r\n",
            "only GET and HEAD are answered",
        ),
        Status::TooLong => (
            "431 Request Header Fields Too Large",
            "",
            "its line and its fields are too long",
        ),
        Status::Version => (
            "505 HTTP Version Not Supported",
            "",
            "only HTTP/1.1 and HTTP/1.0 are spoken",
        ),
    };
    let page = Page {
        content_type: "text/plain",
        text: format!("{what}\n"),
    };
    response(status, fields, &page, head)
}

/// The bytes of an answer. The answer to HEAD has no body.
fn response(status: &str, fields: &str, page: &Page, head: &[u8]) -> Vec<u8> {
    let Page { content_type, text } = page;
    let length = text.len();
    let body = match head.starts_with(b"HEAD ") {
        true => "",
        false => text,
    };
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n\
         Cache-Control: no-store\r\n{fields}Connection: close\r\n\r\n{body}"
    )
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page() -> Page {
        Page {
            content_type: "text/plain",
            text: "hello\n".to_owned(),
        }
    }

    /// The answer to bytes that come in pieces of `piece`.
    fn answer_to(request: &[u8], piece: usize) -> String {
        let mut exchange = Exchange::default();
        let mut pieces = request.chunks(piece);
        while exchange.wants() == Wants::Read {
            exchange.received(pieces.next().unwrap_or_default(), page);
        }
        String::from_utf8(exchange.unsent().to_vec()).expect("text")
    }

    #[test]
    fn each_request_gets_its_answer() {
        let long = format!("GET /{} HTTP/1.1\r\n\r\n", "a".repeat(MAX_HEAD_BYTES));
        for (request, status) in [
            ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", "200 OK"),
            ("GET /metrics HTTP/1.0\n\n", "200 OK"),
            ("HEAD / HTTP/1.1\r\n\r\n", "200 OK"),
            (
                "GET / HTTP/1.1\r\nContent-Length: 9000000000000000000\r\n\r\nabc",
                "200 OK",
            ),
            ("POST / HTTP/1.1\r\n\r\n", "405 "),
            ("get / HTTP/1.1\r\n\r\n", "400 "),
            ("GET  / HTTP/1.1\r\n\r\n", "400 "),
            ("GET /\r\n\r\n", "400 "),
            ("\r\n\r\n", "400 "),
            ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "505 "),
            (&long, "431 "),
        ] {
            for piece in [1, 7, 100_000] {
                let answer = answer_to(request.as_bytes(), piece);
                let start = format!("HTTP/1.1 {status}");
                assert!(answer.starts_with(&start), "{request:?}: {answer}");
                let (_, body) = answer.split_once("\r\n\r\n").expect("a head");
                let is_head = request.starts_with("HEAD");
                assert_eq!(body.is_empty(), is_head, "{request:?}: {answer}");
            }
        }
        assert_eq!(answer_to(b"GET / HTTP/1.1\r\n", 3), "", "it ends early");
    }

    #[test]
    fn bytes_after_the_answer_are_limited() {
        let mut exchange = Exchange::default();
        exchange.received(b"GET / HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\n", page);
        exchange.sent(1);
        exchange.received(&[0; 1000], page);
        assert_eq!(exchange.wants(), Wants::Write);
        exchange.sent(exchange.unsent().len());
        let more = (0..).take_while(|_| {
            exchange.received(&[0; 1024], page);
            exchange.wants() == Wants::Read
        });
        assert_eq!(more.count(), MAX_DISCARDED_BYTES / 1024);
        assert_eq!(
            (exchange.wants(), exchange.unsent()),
            (Wants::Close, &[][..])
        );
    }
}
