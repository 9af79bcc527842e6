//! The serialised form of messages (P12.8).

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::Error;

/// A type whose values each travel as one message.
pub trait ChannelMessage: Serialize + DeserializeOwned {
    /// The name of the type in errors.
    const NAME: &'static str;
    /// The maximum number of bytes of the serialised form. The reader refuses a longer message
    /// before it stores it.
    const MAX_BYTES: usize;
}

/// Writes a message in its serialised form (P12.8).
///
/// # Errors
/// [`Error::TooLong`] for more than [`ChannelMessage::MAX_BYTES`].
pub fn encode<T: ChannelMessage>(message: &T) -> Result<Vec<u8>, Error> {
    let bytes = postcard::to_extend(message, Vec::new()).map_err(|error| Error::Malformed {
        name: T::NAME,
        came_bytes: 0,
        why: error.to_string(),
    })?;
    match bytes.len() {
        came if came > T::MAX_BYTES => Err(Error::TooLong {
            name: T::NAME,
            came,
            max: T::MAX_BYTES,
        }),
        _ => Ok(bytes),
    }
}

/// Reads a message from its serialised form (P12.8).
///
/// # Errors
/// [`Error::Malformed`], also for bytes after the last field.
pub fn decode<T: ChannelMessage>(bytes: &[u8]) -> Result<T, Error> {
    let malformed = |why| Error::Malformed {
        name: T::NAME,
        came_bytes: bytes.len(),
        why,
    };
    let (message, rest) =
        postcard::take_from_bytes(bytes).map_err(|error| malformed(error.to_string()))?;
    if !rest.is_empty() {
        return Err(malformed(format!("{} bytes too many", rest.len())));
    }
    Ok(message)
}
