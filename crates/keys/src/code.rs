//! A short code of one use, and the key that follows from it (P12.3.7).

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};

use rand_core_06::{CryptoRng, RngCore, impls};
use spake2::{Ed25519Group, Identity as Name, Password, Spake2};
use zeroize::Zeroizing;

use crate::{Error, KeyError, Psk};

/// Digits of a code, with the last one, which checks the others.
const DIGITS: usize = 8;
/// Bytes of a message of the exchange: one that says the side, and a point of the curve.
pub const PAKE_BYTES: usize = 33;
/// What both ends are called in the exchange.
const SENDER: &[u8] = b"farwrite code 1 initiator";
const RECEIVER: &[u8] = b"farwrite code 1 responder";
/// Domain of the key that follows from the exchange.
const KEY_CONTEXT: &str = "farwrite code 1 pre-shared key";
/// The table of Damm's quasigroup of order 10: the last digit finds each wrong digit, and each exchange
/// of neighbours.
const DAMM: [[u8; 10]; 10] = [
    [0, 3, 1, 7, 5, 9, 8, 6, 4, 2],
    [7, 0, 9, 2, 1, 5, 4, 8, 6, 3],
    [4, 2, 0, 6, 8, 7, 1, 3, 5, 9],
    [1, 7, 5, 0, 9, 8, 3, 4, 2, 6],
    [6, 1, 2, 3, 0, 4, 5, 9, 7, 8],
    [3, 6, 7, 4, 2, 0, 9, 5, 8, 1],
    [5, 8, 6, 9, 7, 2, 0, 1, 3, 4],
    [8, 9, 4, 5, 3, 6, 2, 0, 1, 7],
    [9, 4, 3, 8, 6, 1, 7, 2, 0, 5],
    [2, 5, 8, 1, 4, 3, 6, 7, 9, 0],
];

/// A code that a person reads at one machine and types at the other: 7 random digits, and one that finds typing
/// errors. A peer that tries a wrong code learns only that the code was wrong, and has used it up.
///
/// ```
/// use farwrite_keys::{Code, KeyError};
///
/// let code = Code::generate()?;
/// let text = code.to_text();
/// assert_eq!(text.len(), 9); // such as 4837-2912
/// assert_eq!(*text.parse::<Code>()?.to_text(), *text);
/// # Ok::<(), KeyError>(())
/// ```
#[derive(Clone)]
pub struct Code(Zeroizing<[u8; DIGITS]>);

impl Code {
    /// Draws a code from the operating system's randomness.
    ///
    /// # Errors
    /// [`KeyError::Randomness`].
    pub fn generate() -> Result<Self, KeyError> {
        let mut digits = Zeroizing::new([0; DIGITS]);
        for digit in &mut digits[..DIGITS - 1] {
            // Below 250, each digit is as likely as the others.
            *digit = loop {
                let mut byte = [0];
                getrandom::fill(&mut byte).map_err(KeyError::Randomness)?;
                if byte[0] < 250 {
                    break byte[0] % 10;
                }
            };
        }
        digits[DIGITS - 1] = damm(&digits[..DIGITS - 1]);
        Ok(Self(digits))
    }

    /// The code for people: two groups of four digits.
    #[must_use]
    pub fn to_text(&self) -> Zeroizing<String> {
        let mut text = Zeroizing::new(String::with_capacity(DIGITS + 1));
        for (at, digit) in self.0.iter().enumerate() {
            if at == DIGITS / 2 {
                text.push('-');
            }
            text.push(char::from(b'0' + digit));
        }
        text
    }

    fn password(&self) -> Password {
        Password::new(&self.0[..])
    }

    /// Begins the exchange at the initiator. Returns its state, and the message for the responder.
    #[must_use]
    pub fn begin(&self) -> (Exchange, Vec<u8>) {
        let names = (Name::new(SENDER), Name::new(RECEIVER));
        let (state, ours) = Spake2::start_a(&self.password(), &names.0, &names.1);
        (Exchange(state), ours)
    }

    /// Begins the exchange at the responder. Returns its state, and the message for the initiator. The same seed
    /// gives the same again, so a responder need not keep the state. `seed` must be random and known to nobody
    /// else, and another one for each message of an initiator.
    #[must_use]
    pub fn respond(&self, seed: [u8; 32]) -> (Exchange, Vec<u8>) {
        let names = (Name::new(SENDER), Name::new(RECEIVER));
        let numbers = Seeded(blake3::Hasher::new_keyed(&seed).finalize_xof());
        let (state, ours) = Spake2::start_b_with_rng(&self.password(), &names.0, &names.1, numbers);
        (Exchange(state), ours)
    }
}

/// One end of the exchange about a code.
pub struct Exchange(Spake2<Ed25519Group>);

impl Exchange {
    /// The key that follows from the other end's message. It is equal at both ends only if the codes are.
    ///
    /// # Errors
    /// [`Error::BadExchange`] for bytes that no code gives.
    pub fn finish(self, theirs: &[u8]) -> Result<Psk, Error> {
        // The result covers the code, both names and both messages.
        let shared = Zeroizing::new(self.0.finish(theirs).map_err(|_| Error::BadExchange)?);
        Ok(Psk::of(blake3::derive_key(KEY_CONTEXT, &shared)))
    }
}

impl fmt::Debug for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Exchange(secret)")
    }
}

/// Random numbers that follow from a seed.
struct Seeded(blake3::OutputReader);

impl RngCore for Seeded {
    fn next_u32(&mut self) -> u32 {
        impls::next_u32_via_fill(self)
    }

    fn next_u64(&mut self) -> u64 {
        impls::next_u64_via_fill(self)
    }

    fn fill_bytes(&mut self, bytes: &mut [u8]) {
        self.0.fill(bytes);
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), rand_core_06::Error> {
        self.fill_bytes(bytes);
        Ok(())
    }
}

/// The output of BLAKE3 under a secret key is not told from random numbers.
impl CryptoRng for Seeded {}

/// A code at one end, and whether it is used up there: at the end that shows it, because somebody has tried it,
/// and at the end where it was typed, because that end has tried it.
#[derive(Debug)]
pub struct OneTimeCode {
    pub(crate) code: Code,
    used: AtomicBool,
}

impl OneTimeCode {
    /// A code that nobody has used.
    #[must_use]
    pub fn new(code: Code) -> Self {
        let used = AtomicBool::new(false);
        Self { code, used }
    }

    /// The code.
    #[must_use]
    pub fn code(&self) -> &Code {
        &self.code
    }

    /// Whether the code is used up.
    #[must_use]
    pub fn is_used(&self) -> bool {
        self.used.load(Ordering::Relaxed)
    }

    /// Uses the code up. Returns whether it was not before.
    pub fn use_up(&self) -> bool {
        !self.used.swap(true, Ordering::Relaxed)
    }

    /// Takes [`OneTimeCode::use_up`] back, because the other end has proven that it knows the code, and nothing has
    /// come of that.
    pub fn restore(&self) {
        self.used.store(false, Ordering::Relaxed);
    }
}

fn damm(digits: &[u8]) -> u8 {
    let step = |sum: u8, digit: &u8| DAMM[usize::from(sum)][usize::from(*digit)];
    digits.iter().fold(0, step)
}

impl FromStr for Code {
    type Err = KeyError;

    /// Reads the digits. Blanks and hyphens are ignored.
    fn from_str(text: &str) -> Result<Self, KeyError> {
        let mut digits = Zeroizing::new([0; DIGITS]);
        let mut count = 0;
        for character in text.chars().filter(|c| !c.is_whitespace() && *c != '-') {
            let digit = character
                .to_digit(10)
                .and_then(|digit| u8::try_from(digit).ok());
            let digit = digit.ok_or(KeyError::Code)?;
            *digits.get_mut(count).ok_or(KeyError::Code)? = digit;
            count += 1;
        }
        match count == DIGITS && damm(&digits[..]) == 0 {
            true => Ok(Self(digits)),
            false => Err(KeyError::Code),
        }
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Code(secret)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_wrong_digit_and_each_exchange_of_neighbours_is_found() {
        let code = Code::generate().expect("randomness");
        let text = code.to_text();
        assert_eq!(text.parse::<Code>().expect("own text").0, code.0);
        let spaced = format!(" {} \n", text.replace('-', " "));
        assert!(spaced.parse::<Code>().is_ok());
        for at in (0..text.len()).filter(|at| *at != 4) {
            let mut wrong = text.as_bytes().to_vec();
            wrong[at] = b'0' + (wrong[at] - b'0' + 1) % 10;
            let wrong = String::from_utf8(wrong).expect("digits");
            assert!(wrong.parse::<Code>().is_err(), "{wrong}");
        }
        for (at, next) in [(0, 1), (1, 2), (2, 3), (3, 5), (5, 6), (6, 7), (7, 8)] {
            let mut wrong = text.as_bytes().to_vec();
            wrong.swap(at, next);
            let is_other = wrong != text.as_bytes();
            let wrong = String::from_utf8(wrong).expect("digits");
            assert_eq!(wrong.parse::<Code>().is_err(), is_other, "{wrong}");
        }
        for wrong in [
            "",
            "1234-567",
            "1234-56789",
            "farwrite-psk-1:a",
            "12345\u{0663}78",
        ] {
            assert!(wrong.parse::<Code>().is_err(), "{wrong}");
        }
        assert_eq!(format!("{code:?}"), "Code(secret)");
    }

    #[test]
    fn a_responder_that_keeps_only_its_seed_goes_on() {
        let code = Code::generate().expect("randomness");
        let (begun, first) = code.begin();
        let (_, second) = code.respond([7; 32]);
        let (again, same) = code.respond([7; 32]);
        assert_eq!(second, same);
        assert_ne!(code.respond([8; 32]).1, second);
        let keys = [begun.finish(&second), again.finish(&first)];
        let [near, far] = keys.map(|key| key.expect("a message"));
        assert_eq!(near.bytes(), far.bytes());
    }

    #[test]
    fn the_keys_of_both_ends_are_equal_only_if_the_codes_are() {
        let [one, other] = [(); 2].map(|()| Code::generate().expect("randomness"));
        let [(begun, first), (answered, second)] = [one.begin(), one.respond([7; 32])];
        assert_eq!([first.len(), second.len()], [PAKE_BYTES; 2]);
        let keys = [begun.finish(&second), answered.finish(&first)];
        let [near, far] = keys.map(|key| key.expect("a message"));
        assert_eq!(near.bytes(), far.bytes());
        let [(begun, first), (answered, second)] = [one.begin(), other.respond([7; 32])];
        let keys = [begun.finish(&second), answered.finish(&first)];
        let [near, far] = keys.map(|key| key.expect("a message"));
        assert_ne!(near.bytes(), far.bytes());
        let reflected = one.respond([7; 32]).0.finish(&second);
        assert!(reflected.is_err(), "a message of the same side");
        let cut = one.respond([7; 32]).0.finish(&first[..PAKE_BYTES - 1]);
        assert!(cut.is_err(), "a short message");
    }
}
