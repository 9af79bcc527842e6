//! Transforms contributions to sums, so that a lost packet becomes a small error of many values.
//!
//! A contribution to a part is a separate segment, so groups of blocks end where parts end. The
//! transform is linear. Contributions are added in transformed form, each one scaled up for its
//! missing packets, and the sum is transformed back once. If the reduced parts have a deadline too,
//! they are sent in transformed form, and each rank transforms back what it has.

use std::fmt::Debug;
use std::marker::PhantomData;
use std::ops::Range;

use bytemuck::{Pod, bytes_of, cast_slice, pod_collect_to_vec, pod_read_unaligned};
use farwrite_codes::hadamard::{Element, Interleave, Rescale, Transform, TransformError};
use half::{bf16, f16};

use super::options::Hadamard;
use crate::element::{ElementType, Reduction};
use crate::index::to_usize;

/// A transform of values of one type.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Encoding {
    element: ElementType,
    values: &'static dyn Values,
    transform: Transform,
}

impl Encoding {
    /// The transform of contributions to a reduction; `None` if they are not transformed.
    /// `packet_bytes` is a power of two.
    pub(crate) fn new(
        hadamard: Option<Hadamard>,
        values: Option<(ElementType, Reduction)>,
        packet_bytes: u64,
    ) -> Option<Self> {
        let (element, reduction) = values?;
        if !matches!(reduction, Reduction::Sum | Reduction::Mean) {
            return None;
        }
        let values: &dyn Values = match element {
            ElementType::F32 => &Of::<f32>(PhantomData),
            ElementType::F16 => &Of::<f16>(PhantomData),
            ElementType::Bf16 => &Of::<bf16>(PhantomData),
            ElementType::F64
            | ElementType::I64
            | ElementType::I32
            | ElementType::U8
            | ElementType::Bool
            | ElementType::I8 => return None,
        };
        let interleave = interleave(hadamard?, to_usize(packet_bytes / element.bytes())).ok()?;
        Some(Self {
            element,
            values,
            transform: Transform::new(interleave),
        })
    }

    /// The number of packets in a group. A packet that arrives counts for all values of its group.
    pub(crate) fn group_packets(&self) -> usize {
        let interleave = self.transform.interleave();
        interleave.group() / interleave.packet()
    }

    /// The transformed bytes of a tensor, part by part.
    pub(crate) fn encode(&self, source: &[u8], parts: &[Range<u64>]) -> Vec<u8> {
        let bytes = self.element.bytes();
        let ends: Vec<_> = parts
            .iter()
            .map(|part| to_usize(part.end / bytes))
            .collect();
        self.values.encode(self.transform, source, &ends)
    }

    /// Scales up the packets that arrived of a transformed contribution to one part, to compensate
    /// for the packets that did not arrive.
    pub(crate) fn rescale(&self, contribution: &mut [u8], arrived: &[bool]) {
        if arrived.contains(&false) {
            self.values.rescale(self.transform, contribution, arrived);
        }
    }

    /// The number of bytes in a group of blocks, which share packets. The last group of a part can have fewer.
    pub(crate) fn group_bytes(&self) -> u64 {
        self.transform.interleave().group() as u64 * self.element.bytes()
    }

    /// Multiplies transformed values.
    pub(crate) fn scale(&self, coefficients: &mut [u8], factor: f32) {
        self.values.scale(coefficients, factor);
    }

    /// Transforms a part back.
    pub(crate) fn decode(&self, part: &mut [u8]) {
        self.values.decode(self.transform, part);
    }
}

/// Operations on values of one type, in memory of any alignment.
trait Values: Debug + Sync {
    /// Segments end at the values `ends`.
    fn encode(&self, transform: Transform, source: &[u8], ends: &[usize]) -> Vec<u8>;
    fn rescale(&self, transform: Transform, segment: &mut [u8], arrived: &[bool]);
    fn scale(&self, coefficients: &mut [u8], factor: f32);
    fn decode(&self, transform: Transform, segment: &mut [u8]);
}

#[derive(Debug)]
struct Of<T>(PhantomData<T>);

impl<T: Element + Pod + Debug + Sync> Values for Of<T> {
    fn encode(&self, transform: Transform, source: &[u8], ends: &[usize]) -> Vec<u8> {
        let values: Vec<T> = pod_collect_to_vec(source);
        let mut encoded = vec![T::zeroed(); values.len()];
        let done = transform.encode(&values, &mut encoded, ends);
        done.expect("parts cover the tensor");
        drop(values);
        cast_slice(&encoded).to_vec()
    }

    fn rescale(&self, transform: Transform, segment: &mut [u8], arrived: &[bool]) {
        let mut values: Vec<T> = pod_collect_to_vec(segment);
        let ends = [values.len()];
        let has_arrived = |_, packet: usize| arrived[packet];
        let done = transform.rescale(&mut values, &ends, has_arrived, Rescale::ByArrived);
        done.expect("the tensor is one segment");
        segment.copy_from_slice(cast_slice(&values));
    }

    fn scale(&self, coefficients: &mut [u8], factor: f32) {
        for bytes in coefficients.chunks_exact_mut(size_of::<T>()) {
            let value = pod_read_unaligned::<T>(bytes).to_f32() * factor;
            bytes.copy_from_slice(bytes_of(&T::from_f32(value)));
        }
    }

    fn decode(&self, transform: Transform, segment: &mut [u8]) {
        let encoded: Vec<T> = pod_collect_to_vec(segment);
        let mut values = vec![T::zeroed(); encoded.len()];
        let done = transform.decode(&encoded, &mut values, &[encoded.len()]);
        done.expect("the tensor is one segment");
        segment.copy_from_slice(cast_slice(&values));
    }
}

/// The mapping from coefficients to packets.
///
/// # Errors
/// The block or the stride is no power of two, or too large.
fn interleave(hadamard: Hadamard, packet: usize) -> Result<Interleave, TransformError> {
    let stride = match hadamard.stride as usize {
        0 => packet,
        stride if stride.is_power_of_two() => packet.min(stride),
        // The error then names the value that the user gave.
        stride => stride,
    };
    Interleave::new(hadamard.block as usize, packet, stride)
}

/// What is wrong with a block or a stride.
pub(crate) fn problem(hadamard: Hadamard) -> Option<TransformError> {
    // A packet of any type holds at least one value of two bytes.
    const MOST_VALUES: usize = 1 << 15;
    interleave(hadamard, MOST_VALUES).err()
}
