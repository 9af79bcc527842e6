//! Converts the inputs of the page to a question for the model.

use farwrite_model::{CompletionTime, Kind, ModelError, Scheme, Setting, Variant, chunk_loss};

/// The size of a packet in bytes.
pub const PACKET_BYTES: f64 = 4096.0;

/// An input of the page, with the number that the page uses for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Input {
    /// The length of the path.
    Distance = 0,
    /// The rate of the path.
    Rate = 1,
    /// The loss of packets.
    Loss = 2,
    /// The length of the message.
    Size = 3,
    /// The number of data chunks in a group.
    K = 4,
    /// The number of parity chunks in a group.
    M = 5,
    /// The number of packets in a chunk.
    Packets = 6,
    /// None of those: the combination of inputs is invalid.
    Whole = 7,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    /// The input to correct.
    pub input: Input,
    /// What is wrong with the input, and which values are valid.
    pub text: String,
}

impl From<ModelError> for Fault {
    fn from(error: ModelError) -> Self {
        let text = error.to_string();
        let argument = match error {
            ModelError::Argument { argument, .. } => argument,
            _ => "",
        };
        let input = match argument {
            "rtt_s" => Input::Distance,
            "bandwidth_bps" => Input::Rate,
            "loss_packet" | "loss_chunk" => Input::Loss,
            "message_bytes" => Input::Size,
            "k" => Input::K,
            "m" => Input::M,
            "packets" | "chunk_bytes" => Input::Packets,
            _ => Input::Whole,
        };
        Self { input, text }
    }
}

/// The page's inputs, in the units of the model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Question {
    /// 0 `sr-rto`, 1 `sr-nack`, 2 `gbn`, 3 `ec-mds`, 4 `ec-xor`.
    pub scheme: u32,
    /// Data chunks of a group; an integer.
    pub k: f64,
    /// Parity chunks of a group; an integer.
    pub m: f64,
    /// Length of the path in kilometres.
    pub distance_km: f64,
    /// Speed of the signal in kilometres per second.
    pub km_per_s: f64,
    /// Rate of the path in bits per second.
    pub bandwidth_bps: f64,
    /// Probability that a packet of [`PACKET_BYTES`] is lost.
    pub loss_packet: f64,
    /// Length of the message in bytes.
    pub message_bytes: f64,
    /// Packets of a chunk; an integer.
    pub packets: f64,
    /// 0 selects the formulas of the paper, every other value `serial`.
    pub variant: u32,
}

impl Question {
    /// The round-trip time in seconds.
    #[must_use]
    pub fn rtt_s(&self) -> f64 {
        2.0 * self.distance_km / self.km_per_s
    }

    /// Probability that a chunk is lost.
    ///
    /// # Errors
    ///
    /// The loss of packets is not a probability, or their number is not an integer or is below 1.
    pub fn loss_chunk(&self) -> Result<f64, Fault> {
        let packets = whole("packets", Input::Packets, self.packets)?;
        Ok(chunk_loss(self.loss_packet, packets)?)
    }

    /// The size of a chunk in bytes.
    #[must_use]
    pub fn chunk_bytes(&self) -> f64 {
        PACKET_BYTES * self.packets
    }

    fn scheme(&self) -> Result<Scheme, Fault> {
        let code = match self.scheme {
            0 => return Ok(Scheme::SrRto),
            1 => return Ok(Scheme::SrNack),
            2 => return Ok(Scheme::GoBackN),
            3 => Kind::Mds,
            _ => Kind::Xor,
        };
        let k = whole("k", Input::K, self.k)?;
        let m = whole("m", Input::M, self.m)?;
        Ok(Scheme::Ec { code, k, m })
    }

    /// The answer of the model.
    ///
    /// # Errors
    ///
    /// The model refuses an argument.
    pub fn completion_time(&self) -> Result<CompletionTime, Fault> {
        let setting = Setting {
            chunk_bytes: self.chunk_bytes(),
            variant: if self.variant == 0 {
                Variant::Paper
            } else {
                Variant::Serial
            },
            ..Setting::new(
                self.scheme()?,
                self.message_bytes,
                self.bandwidth_bps,
                self.rtt_s(),
                self.loss_chunk()?,
            )
        };
        Ok(setting.completion_time()?)
    }
}

/// Converts `value` to an integer. The model rejects values that are too large.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "checked to be a whole number of 32 bits"
)]
fn whole(name: &str, input: Input, value: f64) -> Result<u32, Fault> {
    if value.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(&value) {
        Ok(value as u32)
    } else {
        let text = format!("{name} = {value}: must be a whole number, not below zero");
        Err(Fault { input, text })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USUAL: Question = Question {
        scheme: 3,
        k: 32.0,
        m: 8.0,
        distance_km: 3750.0,
        km_per_s: 3e5,
        bandwidth_bps: 400e9,
        loss_packet: 1e-4,
        message_bytes: 134_217_728.0,
        packets: 1.0,
        variant: 0,
    };

    #[test]
    fn asks_what_the_model_would_be_asked() {
        for (scheme, name) in ["sr-rto", "sr-nack", "gbn", "ec-mds:32,8", "ec-xor:32,8"]
            .iter()
            .enumerate()
        {
            let scheme = u32::try_from(scheme).unwrap();
            let got = Question { scheme, ..USUAL }.completion_time().unwrap();
            let want = Setting::new(name.parse().unwrap(), 134_217_728.0, 400e9, 0.025, 1e-4);
            assert_eq!(got.mean(), want.completion_time().unwrap().mean(), "{name}");
        }
    }

    #[test]
    fn chunks_of_packets_are_lost_with_any_of_them() {
        let question = Question {
            packets: 16.0,
            ..USUAL
        };
        assert_eq!(question.loss_chunk(), Ok(chunk_loss(1e-4, 16).unwrap()));
        assert_eq!(question.chunk_bytes(), 65536.0);
    }

    #[test]
    fn faults_name_the_input() {
        type Spoil = fn(&mut Question);
        let cases: [(Spoil, Input); 12] = [
            (|q| q.distance_km = 0.0, Input::Distance),
            (|q| q.distance_km = f64::NAN, Input::Distance),
            (|q| q.bandwidth_bps = -1.0, Input::Rate),
            (|q| q.loss_packet = 1.5, Input::Loss),
            (|q| q.loss_packet = 0.999, Input::Loss),
            (|q| q.message_bytes = f64::INFINITY, Input::Size),
            (|q| q.k = 2.5, Input::K),
            (|q| q.k = 5000.0, Input::K),
            (|q| q.m = 0.0, Input::M),
            (|q| q.m = -1.0, Input::M),
            (|q| q.packets = 0.0, Input::Packets),
            (|q| q.packets = 1e10, Input::Packets),
        ];
        for (spoil, input) in cases {
            let mut question = USUAL;
            spoil(&mut question);
            let fault = question.completion_time().unwrap_err();
            assert_eq!(fault.input, input, "{}", fault.text);
        }
        let xor = Question {
            scheme: 4,
            m: 33.0,
            ..USUAL
        };
        let fault = xor.completion_time().unwrap_err();
        assert_eq!(
            fault.text,
            "m = 33 chunks: must be at most k for an XOR code"
        );
    }
}
