//! The messages of a stream (P13.1): a byte that says what the message is, and its content.

/// Bytes before the content of a message.
pub(crate) const HEAD_BYTES: usize = 1;

pub(crate) const SIGNAL_BYTES: usize = HEAD_BYTES + 4;

/// The code of an end that has seen a violation (P13.4).
pub(crate) const VIOLATION_CODE: u32 = u32::MAX;

const DATA: u8 = 0;
const LAST: u8 = 1;
const RESET: u8 = 2;
const STOP: u8 = 3;

/// What a message of a stream is (P13.1).
///
/// ```
/// use farwrite_stream::Head;
///
/// assert_eq!(Head::read(b"\0hello"), Ok(Head::Data));
/// assert_eq!(Head::read(&[2, 0, 0, 0, 42]), Ok(Head::Reset(42)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head {
    /// The next bytes of the stream, at least one.
    Data,
    /// The last bytes of the direction, if any.
    Last,
    /// The sender gives up its direction.
    Reset(u32),
    /// The sender wants no more bytes of the other direction.
    Stop(u32),
}

impl Head {
    /// Reads a whole message.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(message: &[u8]) -> Result<Self, &'static str> {
        let (&head, content) = message.split_first().ok_or("a message without bytes")?;
        match head {
            DATA if content.is_empty() => Err("a data message without data"),
            DATA => Ok(Self::Data),
            LAST => Ok(Self::Last),
            RESET | STOP => {
                let code = content.try_into().map(u32::from_be_bytes);
                let code = code.map_err(|_| "a signal of another length than 5 bytes")?;
                Ok(if head == RESET {
                    Self::Reset(code)
                } else {
                    Self::Stop(code)
                })
            }
            _ => Err("a message of an unknown type"),
        }
    }

    /// Writes the head of a message, and its code if it is a signal.
    ///
    /// # Panics
    /// If `message` has no byte, or fewer than 5 for a signal.
    pub fn write(self, message: &mut [u8]) {
        let (head, code) = match self {
            Self::Data => (DATA, None),
            Self::Last => (LAST, None),
            Self::Reset(code) => (RESET, Some(code)),
            Self::Stop(code) => (STOP, Some(code)),
        };
        message[0] = head;
        if let Some(code) = code {
            message[HEAD_BYTES..SIGNAL_BYTES].copy_from_slice(&code.to_be_bytes());
        }
    }
}
