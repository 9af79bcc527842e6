//! Operations of a group, from their names.

use farwrite_collectives::{ElementType, Operation, Reduction};
use pyo3::prelude::*;

use crate::communicator::value_error;

/// Parses the name of an operation. `values` are the names of an element type and of a reduction. `peer` is
/// a rank, the root or the other end, and a tag. `sizes` are the bytes to each rank and from each rank.
pub(crate) fn parse(
    name: &str,
    values: (Option<&str>, Option<&str>),
    peer: (usize, u32),
    sizes: (Vec<u64>, Vec<u64>),
) -> PyResult<Operation> {
    let (root, tag) = peer;
    let values = || PyResult::Ok((element_type(values.0)?, reduction_of(values.1)?));
    Ok(match name {
        "all-reduce" => {
            let (element, reduction) = values()?;
            Operation::AllReduce { element, reduction }
        }
        "reduce-scatter" => {
            let (element, reduction) = values()?;
            Operation::ReduceScatter { element, reduction }
        }
        "all-gather" => Operation::AllGather,
        "all-to-all" => Operation::AllToAll {
            send_bytes: sizes.0,
            receive_bytes: sizes.1,
        },
        "broadcast" => Operation::Broadcast { root },
        "reduce" => {
            let (element, reduction) = values()?;
            Operation::Reduce {
                root,
                element,
                reduction,
            }
        }
        "gather" => Operation::Gather { root },
        "scatter" => Operation::Scatter { root },
        "barrier" => Operation::Barrier,
        "send" => Operation::Send { to: root, tag },
        "receive" => Operation::Receive { from: root, tag },
        "receive-any" => Operation::ReceiveAny { tag },
        _ => return Err(value_error(format!("operation = {name:?}: unknown"))),
    })
}

fn element_type(name: Option<&str>) -> PyResult<ElementType> {
    let all = ElementType::ALL.into_iter();
    named(
        "element",
        name,
        all.map(|element| (element.to_string(), element)),
    )
}

fn reduction_of(name: Option<&str>) -> PyResult<Reduction> {
    let all = Reduction::ALL.into_iter();
    named("reduction", name, all.map(|how| (how.to_string(), how)))
}

fn named<T>(
    argument: &str,
    name: Option<&str>,
    mut all: impl Iterator<Item = (String, T)>,
) -> PyResult<T> {
    let found = all.find(|(known, _)| Some(known.as_str()) == name);
    let found = found.map(|(_, value)| value);
    found.ok_or_else(|| value_error(format!("{argument} = {name:?}: unknown")))
}
