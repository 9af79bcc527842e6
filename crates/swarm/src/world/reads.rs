//! What users do for reads: one exposes memory, the other reads it.

use farwrite::{Error, ExposedRegion, MrSlice, ReadOptions, RecvHandle};

use super::World;
use super::users::content;

/// Bytes on both sides of exposed memory, more than a read asks for beyond it.
const BESIDE: usize = 16_384;
/// Their value.
const SECRET: u8 = 0x5e;

impl World<'_> {
    /// Exposes the bytes of the messages that answer reads. The number of a region is that of its
    /// message.
    pub(super) fn expose(&mut self, pair: usize, hosts: [usize; 2]) -> Result<(), Error> {
        for (from, host) in hosts.into_iter().enumerate() {
            if !self.plan.pairs[pair].reads[from] {
                continue;
            }
            let qp = self.pairs[pair].ends[from].expect("it was created");
            for index in self.plan.course(pair, from) {
                let content = content(self.plan, index);
                let (start, end) = (BESIDE, BESIDE + content.len());
                let mut memory = vec![SECRET; end + BESIDE];
                memory[start..end].copy_from_slice(&content);
                let endpoint = self.hosts[host].endpoint();
                let region = endpoint.register(memory)?;
                endpoint.expose(qp, region.slice(start as u64..end as u64))?;
                let message = &mut self.messages[index];
                (message.content, message.source) = (content, Some(region));
            }
        }
        Ok(())
    }

    /// Reads the next region.
    pub(super) fn post_read(
        &mut self,
        index: usize,
        host: usize,
        target: MrSlice,
        deadline_ns: Option<u64>,
    ) -> Result<RecvHandle, Error> {
        let plan = &self.plan.messages[index];
        let (pair, from) = (plan.pair, plan.from);
        let qp = self.pairs[pair].ends[1 - from].expect("it is awake");
        let region = ExposedRegion(self.pairs[pair].courses[from].posted as u64);
        let scheme = plan.terms.scheme.expect("a read has a scheme");
        let options = ReadOptions {
            scheme,
            deadline_ns,
        };
        self.messages[index].scheme = scheme;
        let endpoint = self.hosts[host].endpoint();
        let posted = match endpoint.post_read(qp, target, region, 0, options) {
            // Its parity would exceed the maximum length of a message.
            Err(Error::TooLong { .. }) => {
                let options = ReadOptions {
                    deadline_ns,
                    ..ReadOptions::default()
                };
                self.messages[index].scheme = options.scheme;
                endpoint.post_read(qp, target, region, 0, options)
            }
            posted => posted,
        };
        if posted.is_ok() {
            // The peer starts the message when the request arrives. The slots are used in the same
            // order as if it had done so now.
            self.tap.borrow_mut().started(pair, from);
        }
        posted
    }
}
