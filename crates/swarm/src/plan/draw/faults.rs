//! Draws the faults of a plan.

use farwrite::Sealing;
use farwrite_rng::SplitMix;

use super::Draft;
use crate::plan::{Fault, PairPlan, SECOND, Span, US};

impl Draft {
    fn span(&mut self) -> Span {
        let from_ns = self.rng.within(0..self.span_ns);
        let length_ns = self.rng.within(1..self.span_ns) / self.rng.pick(&[1, 4, 20]);
        Span {
            from_ns,
            until_ns: from_ns + length_ns.max(US),
        }
    }

    pub(super) fn add_faults(&mut self) {
        for _ in 0..self.rng.pick(&[0, 1, 1, 2, 4]) {
            let span = self.span();
            let fault = match self.rng.within(0..10) {
                0..2 => Fault::Cut {
                    path: self.rng.index(self.plan.paths.len()),
                    ways: self.rng.pick(&[[true, true], [true, false], [false, true]]),
                    span,
                },
                2..4 => Fault::ControlLoss {
                    path: self.rng.index(self.plan.paths.len()),
                    link: self.rng.index(2),
                    span,
                    share: self.rng.pick(&[0.3, 0.9, 1.0]),
                },
                4..6 => Fault::Pause {
                    host: self.rng.index(self.plan.hosts()),
                    span,
                },
                6..8 => Fault::Full {
                    host: self.rng.index(self.plan.hosts()),
                    span,
                    share: self.rng.pick(&[0.1, 0.9]),
                },
                8 => self.late_control(span),
                _ => {
                    self.add_desertion(span);
                    continue;
                }
            };
            self.plan.faults.push(fault);
        }
    }

    /// Control packets must not overtake data that was sent before them. Otherwise the data would
    /// be late, and the protocol would require more generations (P3.10). The queueing delay of data
    /// at a bottleneck is not known here, so such a link loses control packets instead.
    fn late_control(&mut self, span: Span) -> Fault {
        let path = self.rng.index(self.plan.paths.len());
        let link = self.rng.index(2);
        let wait_ns = self.rng.within(1..self.span_ns / 2);
        let share = self.rng.pick(&[0.05, 0.3, 1.0]);
        let config = &self.plan.paths[path].links[link];
        let link_ns = u64::try_from(config.delay.as_nanos()).expect("less than a minute");
        match config.rate_bps {
            None => Fault::ControlLate {
                path,
                link,
                delay_ns: link_ns + wait_ns,
                span,
                share,
            },
            Some(_) => Fault::ControlLoss {
                path,
                link,
                span,
                share,
            },
        }
    }

    /// Adds an end that closes, and a new queue pair on the same path.
    fn add_desertion(&mut self, span: Span) {
        let at_ns = span.from_ns;
        let grace_ns = span.until_ns - span.from_ns;
        let pair = self.rng.index(self.plan.pairs.len());
        let path = self.plan.pairs[pair].path;
        let end = self.rng.index(2);
        self.plan.faults.push(if self.rng.chance(0.6) {
            Fault::Restart {
                host: self.plan.paths[path].hosts[end],
                at_ns,
                grace_ns,
            }
        } else {
            Fault::Close {
                pair,
                end,
                at_ns,
                grace_ns,
            }
        });
        let next = self.plan.pairs.len();
        // The new one opens while packets of the old one are in flight.
        let opens_ns = at_ns + self.rng.within(1..self.span_ns / 4);
        let options = self.plan.pairs[pair].options.clone();
        self.plan.pairs.push(PairPlan {
            path,
            options,
            opens_ns,
            lag_ns: 0,
            reads: [false; 2],
        });
        let schemes = ["sr-nack", "sr-rto"].map(|name| name.parse().expect("a name"));
        for _ in 0..3 {
            self.add_message(next, &schemes, 10_000, opens_ns);
        }
    }

    pub(super) fn add_late_packets(&mut self) {
        for pair in 0..self.plan.pairs.len() {
            if self.rng.chance(0.5) {
                continue;
            }
            let opens_ns = self.plan.pairs[pair].opens_ns;
            let generations = u64::from(self.plan.pairs[pair].options.sdr.generations);
            let fault = Fault::Late {
                pair,
                from: usize::from(self.rng.chance(0.3)),
                span: Span {
                    from_ns: opens_ns,
                    until_ns: opens_ns + self.rng.within(1..2 * self.span_ns),
                },
                share: self.rng.pick(&[0.02, 0.2, 0.5]),
                age: self.rng.within(1..generations),
                copies: self.rng.chance(0.7),
            };
            self.plan.faults.push(fault);
        }
    }

    /// Adds someone who repeats a packet. It has a generator of its own, so that it changes nothing else.
    pub(super) fn add_replay(&mut self, seed: u64) {
        let mut rng = SplitMix::new(seed ^ 8);
        if !rng.chance(0.15) {
            return;
        }
        let pair = rng.index(self.plan.pairs.len());
        let from_ns = self.plan.pairs[pair].opens_ns + rng.within(0..self.span_ns);
        let length_ns = rng.within(1..self.span_ns).max(US);
        self.plan.faults.push(Fault::Replay {
            pair,
            from: usize::from(rng.chance(0.3)),
            span: Span {
                from_ns,
                until_ns: from_ns + length_ns,
            },
            every_ns: (length_ns / rng.pick(&[5, 50, 200])).max(1),
            copies: rng.pick(&[1, 10, 50]),
            marked: rng.chance(0.3),
        });
    }

    /// Seals all queue pairs of some cases, and adds attackers on their paths. It has a generator of
    /// its own, so that other cases stay as they are.
    pub(super) fn seal(&mut self, seed: u64) {
        let mut rng = SplitMix::new(seed ^ 9);
        if !rng.chance(0.2) {
            return;
        }
        for pair in &mut self.plan.pairs {
            pair.options.sealing = Sealing::Required;
        }
        for pair in 0..self.plan.pairs.len() {
            let from_ns = self.plan.pairs[pair].opens_ns + rng.within(0..self.span_ns);
            self.plan.faults.push(Fault::Forgery {
                pair,
                from: rng.index(2),
                span: Span {
                    from_ns,
                    until_ns: from_ns + rng.within(1..self.span_ns).max(US),
                },
                share: rng.pick(&[0.02, 0.3, 1.0]),
            });
        }
    }

    /// Lets hosts code beside other work, from less than a packet up to several round trips.
    pub(super) fn code_beside(&mut self, seed: u64) {
        let mut rng = SplitMix::new(seed ^ 10);
        if rng.chance(0.4) {
            self.plan.coding_ns = rng.pick(&[1, 20 * US, 1_000 * US, 30_000 * US]);
        }
    }

    pub(super) fn heal(&mut self) {
        let messages = self.plan.messages.iter();
        let posts = messages.flat_map(|message| [message.send_ns, message.recv_ns]);
        let ends = self.plan.faults.iter().map(Fault::over_ns);
        let pairs = self.plan.pairs.iter();
        let connects = pairs.map(|pair| pair.opens_ns + pair.lag_ns);
        if let Some(left_ns) = self.plan.attacker_leaves_ns() {
            // Everything must move again at once, so nothing else may be in the way.
            self.plan.heal_ns = left_ns;
            return;
        }
        let last_ns = posts.chain(ends).chain(connects).max().unwrap_or(0);
        self.plan.heal_ns = last_ns + self.rng.within(1..2 * SECOND);
    }
}

impl Fault {
    /// When the fault ends, in nanoseconds.
    pub(crate) fn over_ns(&self) -> u64 {
        match self {
            Self::Cut { span, .. }
            | Self::ControlLoss { span, .. }
            | Self::ControlLate { span, .. }
            | Self::Late { span, .. }
            | Self::Replay { span, .. }
            | Self::Forgery { span, .. }
            | Self::Meddling { span, .. }
            | Self::Pause { span, .. }
            | Self::Full { span, .. } => span.until_ns,
            Self::Restart {
                at_ns, grace_ns, ..
            }
            | Self::Close {
                at_ns, grace_ns, ..
            } => at_ns + grace_ns,
        }
    }
}
