//! Plans as text.

use std::fmt::{self, Display, Formatter};

use farwrite::{SchemeTag, Sealing};
use farwrite_link::{LinkConfig, Loss};
use farwrite_wire::control::Terms;

use super::{Ending, Fault, MS, MessagePlan, PairPlan, Plan, Repair, Span};

/// Nanoseconds, shown in milliseconds.
pub(crate) struct Millis(pub(crate) u64);

impl Display for Millis {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:06} ms", self.0 / MS, self.0 % MS)
    }
}

impl Display for Plan {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let version = if self.ipv6 { 6 } else { 4 };
        let heal = Millis(self.heal_ns);
        writeln!(f, "IPv{version}, links without faults from {heal} on")?;
        if self.translated {
            writeln!(f, "all hosts behind address translation")?;
        }
        if self.coding_ns > 0 {
            writeln!(f, "a group is coded in {}", Millis(self.coding_ns))?;
        }
        for (index, path) in self.paths.iter().enumerate() {
            let [a, b] = path.hosts;
            writeln!(
                f,
                "path {index}: host {a} to host {b}:{}",
                LinkText(&path.links[0])
            )?;
            writeln!(
                f,
                "        host {b} to host {a}:{}",
                LinkText(&path.links[1])
            )?;
            writeln!(f, "        rate control: {:?}", path.rate_control)?;
        }
        for (index, pair) in self.pairs.iter().enumerate() {
            writeln!(f, "queue pair {index}: {pair}")?;
        }
        for fault in &self.faults {
            writeln!(f, "fault: {fault}")?;
        }
        for (index, message) in self.messages.iter().enumerate() {
            writeln!(f, "message {index}: {message}")?;
        }
        Ok(())
    }
}

struct LinkText<'a>(&'a LinkConfig);

impl Display for LinkText<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let link = self.0;
        write!(f, " {:?}", link.delay)?;
        if let Some(rate_bps) = link.rate_bps {
            write!(f, ", {} Mbit/s", rate_bps / 1_000_000)?;
        }
        if let Some(bytes) = link.queue_bytes {
            write!(f, ", queue {bytes} bytes")?;
        }
        match link.loss {
            Loss::None => {}
            Loss::Iid { loss_packet } => write!(f, ", loss {loss_packet:.4}")?,
            Loss::BitErrors { bit_error_rate } => write!(f, ", bit errors {bit_error_rate:e}")?,
            Loss::Markov {
                p_good_to_bad,
                p_bad_to_good,
                loss_good,
                loss_bad,
            } => write!(
                f,
                ", loss {loss_good:.4} or {loss_bad:.4}, changing by {p_good_to_bad:.4} and \
                 {p_bad_to_good:.4}"
            )?,
            Loss::MarkovInTime {
                mean_good,
                mean_bad,
                loss_good,
                loss_bad,
            } => write!(
                f,
                ", loss {loss_good:.4} for {mean_good:?} or {loss_bad:.4} for {mean_bad:?}"
            )?,
        }
        let (probability, extra) = (link.reorder.probability, link.reorder.extra_delay);
        if probability > 0.0 {
            write!(f, ", {probability:.4} held back for {extra:?}")?;
        }
        if link.duplicate > 0.0 {
            write!(f, ", {:.4} duplicated", link.duplicate)?;
        }
        if link.corrupt > 0.0 {
            write!(f, ", {:.4} corrupted", link.corrupt)?;
        }
        Ok(())
    }
}

impl Display for PairPlan {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (path, options) = (self.path, &self.options);
        let (opens, lag) = (Millis(self.opens_ns), Millis(self.lag_ns));
        let sdr = &options.sdr;
        let split = &sdr.split;
        write!(
            f,
            "path {path}, opens at {opens}, at end 1 {lag} later, mtu {}, {} packets a chunk, {} slots, {} generations, \
             {} channels, split {}+{}+{}, messages of {} bytes at most, {}",
            sdr.mtu,
            sdr.packets_per_chunk,
            sdr.slots,
            sdr.generations,
            sdr.channels,
            split.id_bits,
            split.offset_bits,
            split.user_bits,
            sdr.max_message_bytes,
            if sdr.parity { "parity" } else { "no parity" },
        )?;
        write!(
            f,
            ", in bursts of {} bytes, first round trip {:?}, reordering {:?}, \
             expects scheme {} {:?}, parity memory {} bytes, {} timing",
            options.burst_bytes,
            options.initial_rtt,
            options.reordering_window,
            options.expected_scheme.id,
            options.expected_scheme.params,
            options.max_parity_bytes,
            options.timing,
        )?;
        if options.sealing != Sealing::Off {
            write!(f, ", sealed")?;
        }
        for (end, answers) in self.reads.into_iter().enumerate() {
            if answers {
                write!(
                    f,
                    ", end {end} answers {} reads at once",
                    options.max_answers
                )?;
            }
        }
        Ok(())
    }
}

impl Display for MessagePlan {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (pair, from, to) = (self.pair, self.from, 1 - self.from);
        let (bytes, capacity) = (self.bytes, self.capacity);
        write!(
            f,
            "queue pair {pair}, end {from} to {to}, {bytes} bytes into {capacity}, "
        )?;
        match self.scheme {
            Repair::Scheme(scheme) => write!(f, "{scheme}")?,
            Repair::Nothing => f.write_str("no scheme")?,
            Repair::Stream => f.write_str("stream")?,
        }
        for limit_ns in &self.write_limits_ns {
            match limit_ns {
                Some(limit_ns) => write!(f, ", a write for {} at most", Millis(*limit_ns))?,
                None => f.write_str(", a write")?,
            }
        }
        for range in self.critical.ranges() {
            write!(f, ", bytes {range:?} critical")?;
        }
        if let Some(immediate) = self.immediate {
            write!(f, ", immediate {immediate:#x}")?;
        }
        let (send, recv) = (Millis(self.send_ns), Millis(self.recv_ns));
        write!(f, ", sent at {send}")?;
        if let Some(limit_ns) = self.send_limit_ns {
            write!(f, " for {} at most", Millis(limit_ns))?;
        }
        write!(f, ", buffer at {recv}")?;
        if let Some(limit_ns) = self.recv_limit_ns {
            write!(f, " for {} at most", Millis(limit_ns))?;
        }
        self.write_terms(f)?;
        match self.ending {
            Ending::Natural => Ok(()),
            Ending::Cancel { after_ns } => write!(f, ", cancelled {} later", Millis(after_ns)),
            Ending::Complete { after_ns, outcome } => {
                write!(f, ", completed {} later as {outcome:?}", Millis(after_ns))
            }
        }
    }
}

impl MessagePlan {
    fn write_terms(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Terms {
            exact_length,
            immediate,
            scheme,
            accepts_partial,
            answers_read,
        } = self.terms;
        if exact_length {
            let immediate = if immediate { "an" } else { "no" };
            write!(f, ", of exactly this length with {immediate} immediate")?;
        }
        if let Some(SchemeTag { id, params }) = scheme {
            write!(f, ", for scheme {id} {params:?}")?;
        }
        if accepts_partial {
            f.write_str(", partial accepted")?;
        }
        if answers_read {
            f.write_str(", as the answer to a read")?;
        }
        Ok(())
    }
}

impl Display for Span {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {}", Millis(self.from_ns), Millis(self.until_ns))
    }
}

impl Display for Fault {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cut { path, ways, span } => {
                write!(
                    f,
                    "path {path} down, forth {}, back {}, {span}",
                    ways[0], ways[1]
                )
            }
            Self::ControlLoss {
                path,
                link,
                span,
                share,
            } => write!(
                f,
                "path {path} link {link} loses {share} of control packets, {span}"
            ),
            Self::ControlLate {
                path,
                link,
                span,
                share,
                delay_ns,
            } => {
                write!(
                    f,
                    "path {path} link {link} holds {share} of control packets back for "
                )?;
                write!(f, "{}, {span}", Millis(*delay_ns))
            }
            Self::Late { .. } | Self::Replay { .. } | Self::Forgery { .. } => self.fmt_copies(f),
            Self::Meddling {
                path,
                span,
                trailers,
                icrc_share,
                repeat_share,
            } => write!(
                f,
                "someone on path {path} writes {trailers:?} trailers, breaks {icrc_share} of ICRCs, \
                 repeats {repeat_share} of route packets, {span}"
            ),
            Self::Pause { host, span } => write!(f, "host {host} does not poll, {span}"),
            Self::Full { host, span, share } => {
                write!(
                    f,
                    "host {host} has a full fabric in {share} of calls, {span}"
                )
            }
            Self::Restart {
                host,
                at_ns,
                grace_ns,
            } => {
                write!(f, "host {host} restarts, ")?;
                write_desertion(f, *at_ns, *grace_ns)
            }
            Self::Close {
                pair,
                end,
                at_ns,
                grace_ns,
            } => {
                write!(f, "end {end} of queue pair {pair} closes, ")?;
                write_desertion(f, *at_ns, *grace_ns)
            }
        }
    }
}

impl Fault {
    /// Writes a fault that brings packets late, or again.
    fn fmt_copies(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Late {
                pair,
                from,
                span,
                share,
                age,
                copies,
            } => {
                let what = if *copies { "copies" } else { "packets" };
                write!(
                    f,
                    "{share} of {what} of queue pair {pair} from end {from} arrive {age} messages \
                     of their slot late, {span}"
                )
            }
            Self::Replay {
                pair,
                from,
                span,
                every_ns,
                copies,
                marked,
            } => {
                let what = if *marked { "marked copies" } else { "copies" };
                write!(
                    f,
                    "{copies} {what} of a packet of queue pair {pair} from end {from} arrive every "
                )?;
                write!(f, "{}, {span}", Millis(*every_ns))
            }
            Self::Forgery {
                pair,
                from,
                span,
                share,
            } => write!(
                f,
                "someone changes copies of {share} of the packets of queue pair {pair} from end \
                 {from}, {span}"
            ),
            _ => Ok(()),
        }
    }
}

fn write_desertion(f: &mut Formatter<'_>, at_ns: u64, grace_ns: u64) -> fmt::Result {
    let (at, grace) = (Millis(at_ns), Millis(grace_ns));
    write!(f, "at {at}, its peers give up {grace} later")
}
