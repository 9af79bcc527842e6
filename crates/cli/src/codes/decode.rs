//! `farwrite codes decode`: rebuilds the lost chunks of a file from its parity.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use farwrite_codes::{Codec, Kind, Layout, Present};
use serde_json::json;

use super::cut::{Cut, CutArgs};
use super::input::Input;
use super::lost::{Lost, parse_chunks};
use super::output::Output;
use crate::console::Console;
use crate::exit::{Exit, Failure, OrExit};
use farwrite_units::parse::parse_count;
use farwrite_units::show::{ByteRate, Bytes};

const EXAMPLES: &str = "\
Examples:
  farwrite codes decode --in damaged --parity data.parity --lost 3,17,40-44 --out data
  farwrite codes decode --code ec-xor:10,2 --chunk-bytes 1MiB --in damaged --parity data.parity \\
      --lost 7 --lost-parity 0,1 --out data
  farwrite codes decode --in cut-short --bytes 134217728 --parity data.parity --out data

With chunks of N bytes, chunk c has the bytes c N to (c + 1) N - 1 of the file, and of the parity
file that `farwrite codes encode` writes. A lost chunk must keep its place in the file, with any
contents. Only chunks that are named as lost are rebuilt. Then the remaining parity chunks must agree
with the result, or nothing is written. This check detects damage that was not named, and a --code or
--chunk-bytes that differs from that of the parity.";

/// Rebuilds lost chunks of a file from its parity.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct DecodeArgs {
    #[command(flatten)]
    cut: CutArgs,
    /// File with the remaining data, each chunk at its position
    #[arg(long = "in", value_name = "FILE")]
    input: PathBuf,
    /// File with the parity
    #[arg(long, value_name = "FILE")]
    parity: PathBuf,
    /// Data chunks that are lost, counted from 0: 3,17,40-44
    #[arg(long, value_name = "CHUNKS", value_delimiter = ',', value_parser = parse_chunks)]
    #[arg(allow_hyphen_values = true)]
    lost: Vec<RangeInclusive<u64>>,
    /// Parity chunks that are lost, counted from 0: 3,17,40-44
    #[arg(long, value_name = "CHUNKS", value_delimiter = ',', value_parser = parse_chunks)]
    #[arg(allow_hyphen_values = true)]
    lost_parity: Vec<RangeInclusive<u64>>,
    /// Length of the complete file, if its end is missing from --in; chunks that are missing or
    /// incomplete count as lost
    #[arg(long, value_name = "N", value_parser = parse_count, allow_hyphen_values = true)]
    bytes: Option<u64>,
    /// File to write; it gets its name when it is complete, and replaces an existing file
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

/// The lost chunks of each file.
struct Damage {
    cut: Cut,
    /// The size of the complete file in bytes.
    data_bytes: u64,
    data: Lost,
    parity: Lost,
}

/// Writes the complete file.
pub(super) fn run(args: &DecodeArgs, console: &Console) -> Result<(), Failure> {
    let cancel = crate::interrupt::catch()?;
    let cut = args.cut.cut()?;
    let mut input = Input::open_file(&args.input)?;
    let mut parity_input = Input::open_file(&args.parity)?;
    let damage = Damage::of(args, cut, &input, &parity_input)?;
    damage.check()?;
    let mut output = Output::create(&args.out, &[&input, &parity_input])?;
    let (codec, data_bytes) = (Codec::new(cut.code), damage.data_bytes);
    let progress = console.progress("decode", data_bytes);
    let start = Instant::now();
    let batch_groups = cut.batch_groups();
    let mut buffers = Buffers::default();
    let (mut group, mut done, mut unchecked_groups) = (0, 0, 0);
    while done < data_bytes {
        cancel.check()?;
        let left = usize::try_from(data_bytes - done).unwrap_or(usize::MAX);
        let bytes = left.min(batch_groups * cut.group_bytes());
        buffers.fill(&cut, bytes, &mut input, &mut parity_input)?;
        unchecked_groups += damage.repair(&codec, group, &mut buffers)?;
        output.write(&buffers.data)?;
        group += batch_groups as u64;
        done += bytes as u64;
        progress.show(done, ByteRate::of(done, start.elapsed()));
    }
    output.finish()?;
    let elapsed = start.elapsed();
    progress.finish(done, ByteRate::of(done, elapsed));
    let groups = cut.groups(data_bytes);
    let checked = match unchecked_groups {
        0 => "all groups agree with the parity that is left over".to_owned(),
        n => format!("{n} of {groups} groups have no parity left over to check the result by"),
    };
    console.say(format_args!(
        "wrote {}: {}, {} chunks rebuilt; {checked}",
        args.out.display(),
        Bytes(data_bytes),
        damage.data.len()
    ));
    console.json(&json!({
        "code": cut.code.to_string(),
        "chunk_bytes": cut.chunk_bytes,
        "data_bytes": data_bytes,
        "groups": groups,
        "rebuilt_chunks": damage.data.len(),
        "lost_parity_chunks": damage.parity.len(),
        "unchecked_groups": unchecked_groups,
        "kernel": codec.kernel().as_str(),
        "threads": cut.threads,
        "seconds": elapsed.as_secs_f64(),
        "out": args.out.display().to_string(),
    }))
}

impl Damage {
    /// # Errors
    /// [`Exit::Usage`] if lengths do not fit, or if the user names lost chunks that do not exist.
    fn of(
        args: &DecodeArgs,
        cut: Cut,
        input: &Input,
        parity_input: &Input,
    ) -> Result<Self, Failure> {
        let usage = |what: String| Err(Failure::new(Exit::Usage, what));
        let there = input.bytes();
        let data_bytes = args.bytes.unwrap_or(there);
        if there > data_bytes {
            return usage(format!(
                "--bytes {data_bytes}: {} is longer, {there} bytes",
                args.input.display()
            ));
        }
        let chunks = cut.chunks(data_bytes);
        let mut data = Lost::new(&args.lost, chunks, "--lost")?;
        if there < data_bytes {
            data.insert(there / cut.chunk_bytes as u64..chunks);
        }
        let parity = Lost::new(
            &args.lost_parity,
            cut.parity_chunks(data_bytes),
            "--lost-parity",
        )?;
        // The end of the parity file may be missing too, if the user names all of its chunks as
        // lost.
        let needed = match parity.ranges().last() {
            Some(last) if last.end == cut.parity_chunks(data_bytes) => {
                last.start * cut.chunk_bytes as u64
            }
            _ => cut.parity_bytes(data_bytes).unwrap_or(u64::MAX),
        };
        let given = parity_input.bytes();
        let most = cut.parity_bytes(data_bytes).unwrap_or(u64::MAX);
        if !(needed..=most).contains(&given) {
            return usage(format!(
                "{data_bytes} bytes of data in chunks of {} have {most} bytes of parity by {}, and {} \
                 has {given}: --code and --chunk-bytes must be those of the parity, --bytes the length \
                 of the whole file, and --lost-parity must name what is missing",
                cut.chunk_bytes,
                cut.code,
                args.parity.display()
            ));
        }
        Ok(Self {
            cut,
            data_bytes,
            data,
            parity,
        })
    }

    fn present(&self, group: u64) -> Present {
        let chunks = self.cut.chunks_of(group, self.data_bytes);
        let index = |number: u64, first: u64| usize::try_from(number - first).unwrap_or(usize::MAX);
        let mut present = Present::all(self.cut.code, index(chunks.end, chunks.start));
        for lost in self.data.within(chunks.clone()) {
            present.data.remove(index(lost, chunks.start));
        }
        let m = self.cut.code.m() as u64;
        for lost in self.parity.within(group * m..(group + 1) * m) {
            present.parity.remove(index(lost, group * m));
        }
        present
    }

    /// Whether every group can be rebuilt.
    ///
    /// # Errors
    /// [`Exit::Other`], which names the first group that cannot be rebuilt.
    fn check(&self) -> Result<(), Failure> {
        let k = self.cut.code.k() as u64;
        let mut checked = 0;
        for range in self.data.ranges() {
            for group in checked.max(range.start / k)..range.end.div_ceil(k) {
                let chunks = self.cut.chunks_of(group, self.data_bytes);
                let data_chunks = usize::try_from(chunks.end - chunks.start).unwrap_or(usize::MAX);
                let present = self.present(group);
                if !self.cut.code.recoverable(data_chunks, &present) {
                    let losses = present.data.missing(data_chunks).len();
                    let what = format!(
                        "group {group} (data chunks {} to {}) cannot be rebuilt: {losses} of its data \
                         chunks are lost, and {} parity chunks are there; {}",
                        chunks.start,
                        chunks.end - 1,
                        present.parity.len(),
                        self.rule()
                    );
                    return Err(Failure::new(Exit::Other, what));
                }
                checked = group + 1;
            }
        }
        Ok(())
    }

    /// A description of the losses that the code repairs.
    fn rule(&self) -> String {
        let code = self.cut.code;
        match code.kind() {
            Kind::Mds => format!("{code} repairs as many losses as there are parity chunks"),
            Kind::Xor => format!(
                "{code} repairs, by parity chunk i of a group, one loss among the data chunks j of \
                 the group with j mod {} = i",
                code.m()
            ),
        }
    }

    /// Rebuilds the groups from `first` on, and compares them with the remaining parity. Returns
    /// the number of groups without remaining parity.
    ///
    /// # Errors
    /// [`Exit::Corrupt`] if they do not match.
    fn repair(&self, codec: &Codec, first: u64, buffers: &mut Buffers) -> Result<u64, Failure> {
        let Cut {
            chunk_bytes,
            threads,
            code,
        } = self.cut;
        let Buffers { data, parity, made } = buffers;
        let doing = "rebuilding chunks";
        let layout = Layout::new(code, data.len(), chunk_bytes).or_exit(Exit::Other, doing)?;
        let groups = first..first + layout.groups() as u64;
        let present: Vec<_> = groups.map(|group| self.present(group)).collect();
        let covering = &parity[..layout.parity_bytes()];
        codec
            .recover_message(data, covering, chunk_bytes, &present, threads)
            .or_exit(Exit::Other, doing)?;
        self.cut
            .encode(codec, data, made)
            .or_exit(Exit::Other, doing)?;
        let mut unchecked = 0;
        for (at, present) in present.iter().enumerate() {
            let data_chunks = layout.group(at).map_or(0, |group| group.data_chunks);
            let losses = present.data.missing(data_chunks).len();
            unchecked += u64::from(present.parity.len() == losses);
            for chunk in present.parity.iter() {
                let chunk = at * code.m() + chunk;
                let bytes = chunk * chunk_bytes..(chunk + 1) * chunk_bytes;
                if parity.get(bytes.clone()) != made.get(bytes) {
                    return Err(
                        self.disagrees(first + at as u64, chunk as u64 + first * code.m() as u64)
                    );
                }
            }
        }
        Ok(unchecked)
    }

    fn disagrees(&self, group: u64, parity_chunk: u64) -> Failure {
        let chunks = self.cut.chunks_of(group, self.data_bytes);
        Failure::new(
            Exit::Corrupt,
            format!(
                "parity chunk {parity_chunk} is not that of group {group} (data chunks {} to {}): chunks \
                 are damaged that neither --lost nor --lost-parity names, or --code, \
                 --chunk-bytes or --bytes are not those of the parity",
                chunks.start,
                chunks.end - 1
            ),
        )
    }
}

/// Buffers for consecutive groups.
#[derive(Default)]
struct Buffers {
    data: Vec<u8>,
    /// The parity as it was read.
    parity: Vec<u8>,
    /// The parity as computed from the data.
    made: Vec<u8>,
}

impl Buffers {
    /// Reads the next groups. Zeros replace the bytes that are missing at the end of a file.
    fn fill(
        &mut self,
        cut: &Cut,
        bytes: usize,
        data: &mut Input,
        parity: &mut Input,
    ) -> Result<(), Failure> {
        data.read(bytes, &mut self.data)?;
        self.data.resize(bytes, 0);
        let parity_bytes = bytes.div_ceil(cut.group_bytes()) * cut.group_parity_bytes();
        parity.read(parity_bytes, &mut self.parity)?;
        self.parity.resize(parity_bytes, 0);
        Ok(())
    }
}
