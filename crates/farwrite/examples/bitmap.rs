//! Repairs losses without a scheme: the receiver's bitmap shows which chunks to send again.

use farwrite::fabric::sim::{LinkConfig, Loss, SimNetwork};
use farwrite::{Endpoint, Outcome, QpOptions};

pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    let network = SimNetwork::new(1); // two ends and a path between them, in virtual time
    let (left, right) = ("10.0.0.1:4792".parse()?, "10.0.0.2:4792".parse()?);
    let mut a = Endpoint::new(network.endpoint(left, 1)?, [1; 32]);
    let mut b = Endpoint::new(network.endpoint(right, 1)?, [2; 32]);
    let lossy = LinkConfig {
        loss: Loss::Iid { loss_packet: 0.1 },
        ..LinkConfig::default()
    };
    network.connect(left.ip(), right.ip(), lossy, lossy)?;
    let qa = a.create_qp(QpOptions::default())?;
    let qb = b.create_qp(QpOptions::default())?;
    a.connect_qp(qa, &b.qp_info(qb)?)?;
    b.connect_qp(qb, &a.qp_info(qa)?)?;
    let source = a.register(vec![7_u8; 1 << 20])?;
    let target = b.register(vec![0_u8; 1 << 20])?;
    let recv = b.post_recv(qb, target.whole())?;
    let stream = a.start_stream(qa, None)?;
    a.send_chunks(&stream, source.whole(), 0)?;
    while recv.bitmap().count() < 256 {
        for _ in 0..50 {
            network.advance_to(network.now_ns() + 1_000_000);
            a.poll(network.now_ns())?;
            b.poll(network.now_ns())?;
        }
        println!("{} of 256 chunks are there", recv.bitmap().count());
        for chunk in (0..256).filter(|&chunk| !recv.bitmap().get(chunk)) {
            let first = u64::from(chunk) * 4096;
            a.send_chunks(&stream, source.slice(first..first + 4096), chunk)?;
        }
    }
    b.complete_recv(&recv, Outcome::Whole)?;
    assert!(b.memory(target)?.iter().all(|&byte| byte == 7));
    Ok(())
}
