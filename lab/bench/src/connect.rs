//! Connects two endpoints of one process.

use farwrite::{Endpoint, Error, Fabric, QpOptions, QueuePair};

/// Makes a queue pair at each end and connects the two.
pub(crate) fn connect<F: Fabric>(
    a: &mut Endpoint<F>,
    b: &mut Endpoint<F>,
    options: &QpOptions,
) -> Result<[QueuePair; 2], Error> {
    let pair = [a.create_qp(options.clone())?, b.create_qp(options.clone())?];
    a.connect_qp(pair[0], &b.qp_info(pair[1])?)?;
    b.connect_qp(pair[1], &a.qp_info(pair[0])?)?;
    Ok(pair)
}
