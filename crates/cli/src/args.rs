//! The command line: its commands, and the error message for an invalid one.

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};
use serde_json::Value;

use crate::boxes::{LowarArgs, NetRtArgs};
use crate::codes::CodesArgs;
use crate::console::json_object;
use crate::cp::CpArgs;
use crate::demo::DemoArgs;
use crate::exit::{Exit, Failure, exit_codes};
use crate::forward::ForwardArgs;
use crate::keygen::KeygenArgs;
use crate::link::LinkArgs;
use crate::pages::{CompletionsArgs, ManArgs};
use crate::perf::PerfArgs;
use crate::plan::PlanArgs;
use crate::probe::ProbeArgs;
use crate::recv::RecvArgs;
use crate::rsh::RshArgs;
use crate::send::SendArgs;
use crate::sim::SimArgs;
use crate::trace::DrawArgs;

const EXAMPLES: &str = "\
Examples:
  farwrite demo                      see five ways of repairing losses at work on one machine
  farwrite demo --loss 1% --rtt 80ms --scheme sr-nack
  farwrite cp data.bin host:in/      copy a file to another machine that ssh reaches
  rsync -a -e 'farwrite rsh' dir host:
  farwrite recv                      wait for files, and print the command for the other machine
  farwrite forward -L 8080:localhost:80 host
  tar c . | farwrite send --to far.example --psk-file far.key -
  farwrite keygen far.key            make the key that two machines share
  farwrite link --namespaces a b --rate 1Gbit --rtt 40ms
  farwrite probe far.example         measure the path to another machine
  farwrite perf write_bw far.example measure messages, as ib_write_bw does
  farwrite plan --rate 400Gbit --rtt 25ms --loss 1e-5 --size 128MiB
  farwrite codes bench               measure the erasure codes on this machine
  farwrite lowar --near eth1 --far eth2 --psk-file boxes.key
  farwrite sim plan.toml             simulate flows in a network
  farwrite trace send.jsonl          draw what `send --trace send.jsonl` has written
";

/// Moves files and memory between machines over long, fast, lossy links, and repairs losses in
/// software.
#[derive(Debug, Parser)]
#[command(name = "farwrite", version, max_term_width = 100)]
#[command(after_help = format!("{EXAMPLES}\n{}", exit_codes()))]
pub(crate) struct Cli {
    /// Print one JSON object on standard output and nothing else there.
    #[arg(long, global = true, display_order = 100)]
    pub(crate) json: bool,
    /// Print the object of --json as the last line, and before it an object on a line for each event. Commands
    /// that move files have the events start, progress, each file and warnings.
    #[arg(long, global = true, display_order = 100)]
    pub(crate) json_lines: bool,
    /// Show no progress. `cp` then shows only warnings and errors.
    #[arg(long, short, global = true, display_order = 101)]
    pub(crate) quiet: bool,
    /// The names of the command and of its subcommand, as JSON shows them.
    #[arg(skip)]
    pub(crate) name: String,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Compute parity for files, repair files with it, measure the erasure codes.
    Codes(CodesArgs),
    /// Print completions for a shell.
    Completions(CompletionsArgs),
    /// Copy files to or from another machine that ssh reaches.
    Cp(CpArgs),
    /// Move a message over an emulated long link, once with each scheme.
    Demo(DemoArgs),
    /// The other end of `farwrite cp`, which starts this command through ssh, with `recv PORT OPTIONS...` or
    /// `send OPTIONS... -- PATH...`, for example.
    #[command(skip)]
    Far(Vec<OsString>),
    /// Forward a TCP port to another machine, as `ssh -L` does.
    Forward(Box<ForwardArgs>),
    /// Make a pre-shared key for two machines.
    Keygen(KeygenArgs),
    /// Emulate a long path between two network namespaces, for any IP traffic.
    Link(Box<LinkArgs>),
    /// Recover lost RDMA packets from repair packets: a box at each end of a long path.
    Lowar(LowarArgs),
    /// Write manual pages.
    Man(ManArgs),
    /// Repeat lost RDMA packets inside the network: a box beside each NIC.
    Netrt(NetRtArgs),
    /// Measure messages between two machines, with the options and the table of perftest.
    Perf(Box<PerfArgs>),
    /// Predict which scheme delivers a message first, its cost, and how certain that is.
    Plan(PlanArgs),
    /// Measure the path to another machine.
    Probe(ProbeArgs),
    /// Receive files from another machine.
    Recv(RecvArgs),
    /// Run a command on another machine: a remote shell for rsync.
    Rsh(RshArgs),
    /// Send files to another machine.
    Send(SendArgs),
    /// Simulate flows in a network of hosts and switches, or many such runs.
    Sim(SimArgs),
    /// Draw the trace of a transfer, and show what messages waited for.
    Trace(DrawArgs),
}

impl Command {
    /// Whether the standard output of the command carries data, so that nothing else may go there.
    pub(crate) fn writes_data(&self) -> bool {
        match self {
            Self::Recv(args) => args.is_pipe(),
            Self::Cp(args) => args.writes_data(),
            Self::Rsh(_) => true,
            _ => false,
        }
    }
}

impl Cli {
    /// Reads the arguments of this process.
    pub(crate) fn parse_args() -> Result<Self, Refused> {
        if let Some(far) = Self::of_far(std::env::args_os()) {
            return Ok(far);
        }
        let matches = Self::described().try_get_matches_from(perf_flags(std::env::args_os()));
        let parsed = matches.and_then(|matches| {
            let mut cli = Self::from_arg_matches(&matches)?;
            cli.name = name_of(&matches);
            if let (Command::Perf(args), Some((_, of_perf))) =
                (&mut cli.command, matches.subcommand())
            {
                args.note_given(of_perf);
            }
            Ok(cli)
        });
        parsed.map_err(|error| Refused {
            arguments: std::env::args_os().skip(1).collect(),
            error,
        })
    }

    /// Reads the command `far`, which only `farwrite` itself starts. So no help, page or completion names it.
    fn of_far(arguments: impl Iterator<Item = OsString>) -> Option<Self> {
        let mut words = arguments.skip(1);
        let is_far = words.next()? == "--quiet" && words.next()? == "far";
        is_far.then(|| Self {
            json: false,
            json_lines: false,
            quiet: true,
            name: "far".into(),
            command: Command::Far(words.collect()),
        })
    }

    /// The description of the command line, whose texts have the width of the terminal.
    pub(crate) fn described() -> clap::Command {
        with_flowing_help(Self::command())
    }
}

/// The names of the command and of its subcommands.
fn name_of(mut matches: &ArgMatches) -> String {
    let mut names = Vec::new();
    while let Some((name, below)) = matches.subcommand() {
        names.push(name);
        matches = below;
    }
    names.join(" ")
}

/// Joins the lines of each paragraph in the help of a command and its subcommands: clap keeps line ends, and
/// breaks only lines that are longer than the terminal.
fn with_flowing_help(command: clap::Command) -> clap::Command {
    let text = command.get_after_help().map(ToString::to_string);
    let command = match text {
        Some(text) => command.after_help(flowing(&text)),
        None => command,
    };
    let below = command.get_subcommands();
    let names: Vec<_> = below.map(|below| below.get_name().to_owned()).collect();
    let nested =
        |command: clap::Command, name: &String| command.mut_subcommand(name, with_flowing_help);
    names.iter().fold(command, nested)
}

/// A text with one line for each paragraph. Paragraphs with indented lines, such as examples, are not
/// changed.
fn flowing(text: &str) -> String {
    let paragraph = |lines: &str| match has_indented_lines(lines) {
        true => lines.to_owned(),
        false => lines.replace('\n', " "),
    };
    let paragraphs: Vec<_> = text.trim_end().split("\n\n").map(paragraph).collect();
    paragraphs.join("\n\n")
}

/// Whether a paragraph has indented lines, such as examples, which keep their ends.
pub(crate) fn has_indented_lines(paragraph: &str) -> bool {
    paragraph.contains("\n ") || paragraph.starts_with(' ')
}

/// `-q` is the number of queue pairs in perftest, and `--quiet` in this program. After `perf`, it has the
/// meaning of perftest.
fn perf_flags(arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut arguments: Vec<_> = arguments.collect();
    let Some(at) = arguments.iter().position(|argument| argument == "perf") else {
        return arguments;
    };
    // If a word that is no option stands before `perf`, `perf` is an argument of another command.
    if !arguments[1..at]
        .iter()
        .all(|before| before.as_encoded_bytes().starts_with(b"-"))
    {
        return arguments;
    }
    for argument in &mut arguments[at + 1..] {
        if let Some(rest) = argument.to_str().and_then(|text| text.strip_prefix("-q")) {
            *argument = match rest {
                "" => "--qp".into(),
                number => format!("--qp={number}").into(),
            };
        }
    }
    arguments
}

/// A command line that runs no command: it requests help, or it is invalid.
pub(crate) struct Refused {
    /// The arguments.
    arguments: Vec<OsString>,
    error: clap::Error,
}

impl Refused {
    /// Shows help if it was requested, otherwise one line about the error.
    pub(crate) fn show(&self) -> ExitCode {
        match self.error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
                // A closed standard output is ignored: its reader cannot receive anything more.
                let _ = self.error.print();
                ExitCode::SUCCESS
            }
            ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
                let _ = self.error.print();
                Exit::Usage.into()
            }
            _ => {
                let line = format!("{}; see farwrite{} --help", self.line(), self.command());
                let failure = Failure::new(Exit::Usage, line);
                // The reader of either output may be gone.
                let _ = writeln!(io::stderr(), "farwrite: {failure}");
                let is_json =
                    |argument: &OsString| argument == "--json" || argument == "--json-lines";
                if self.arguments.iter().any(is_json) {
                    let command = self.command();
                    let object = json_object(command.trim(), Some(&failure), &Value::Null);
                    let _ = writeln!(io::stdout(), "{object}");
                }
                Exit::Usage.into()
            }
        }
    }

    /// The message of clap in one line, without its usage.
    fn line(&self) -> String {
        let text = self.error.to_string();
        let text = text.strip_prefix("error: ").unwrap_or(&text);
        let message = text
            .lines()
            .map(str::trim)
            .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more"));
        let parts: Vec<_> = message.filter(|line| !line.is_empty()).collect();
        parts.join("; ").replace(":; ", ": ")
    }

    /// The command that the arguments name, with a space in front of each word.
    fn command(&self) -> String {
        let mut command = Cli::command();
        let mut words = String::new();
        let names = self.arguments.iter().filter_map(|name| name.to_str());
        for name in names.filter(|name| !name.starts_with('-')) {
            let Some(known) = command.find_subcommand(name) else {
                break;
            };
            words = format!("{words} {name}");
            command = known.clone();
        }
        words
    }
}

/// The arguments of one command.
#[derive(Parser)]
struct Only<T: clap::Args> {
    #[command(flatten)]
    args: T,
}

/// Reads the arguments of one command.
pub(crate) fn parse_only<T: clap::Args>(
    words: impl Iterator<Item = OsString>,
) -> Result<T, clap::Error> {
    let words = std::iter::once("farwrite".into()).chain(words);
    Ok(Only::<T>::try_parse_from(words)?.args)
}

#[cfg(test)]
pub(crate) fn parsed<T: clap::Args>(arguments: &str) -> Result<T, String> {
    let words = arguments.split_whitespace().map(OsString::from);
    parse_only(words).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_other_end_of_a_copy_is_no_command_for_people() {
        let words = ["farwrite", "--quiet", "far", "send", "--json", "--", "a"];
        let far = Cli::of_far(words.map(OsString::from).into_iter()).map(|far| far.name);
        assert_eq!(far.as_deref(), Some("far"));
        let described = Cli::described();
        assert!(described.find_subcommand("far").is_none());
        let sent = words[..2]
            .iter()
            .chain(&["send", "far"])
            .map(OsString::from);
        assert!(Cli::of_far(sent).is_none());
    }

    #[test]
    fn texts_of_help_flow_and_examples_fit_a_line() {
        let mut commands = vec![Cli::described()];
        while let Some(command) = commands.pop() {
            let text = command.get_after_help().map(ToString::to_string);
            let name = command.get_name();
            for line in text.iter().flat_map(|text| text.lines()) {
                let is_example = line.starts_with("  farwrite");
                assert!(!is_example || line.len() <= 100, "{name}: {line}");
            }
            for part in text.iter().flat_map(|text| text.split("\n\n")) {
                let is_indented = part.starts_with(' ') || part.contains("\n ");
                assert!(is_indented || !part.contains('\n'), "{name}: {part}");
            }
            commands.extend(command.get_subcommands().cloned());
        }
        assert_eq!(
            flowing("a\nb\n\nc:\n  d\n\ne\nf\n"),
            "a b\n\nc:\n  d\n\ne f"
        );
    }

    fn line(args: &[&str]) -> String {
        let error = Cli::try_parse_from([&["farwrite"], args].concat()).expect_err("refused");
        let arguments = args.iter().map(Into::into).collect();
        let refused = Refused { arguments, error };
        format!("{}; see farwrite{}", refused.line(), refused.command())
    }

    #[test]
    fn what_is_wrong_is_told_in_one_line() {
        let message = line(&["demo", "--loss", "-1"]);
        assert!(message.contains("'-1' for '--loss <P>'"), "{message}");
        assert!(message.contains("0 to 0.5"), "{message}");
        let message = line(&["demo", "--sead", "1"]);
        assert!(
            message.contains("--sead") && message.contains("'--seed'"),
            "{message}"
        );
        let message = line(&["codes", "encode", "--in", "x"]);
        assert!(message.contains("--out <FILE>"), "{message}");
        assert!(message.ends_with("see farwrite codes encode"), "{message}");
        let message = line(&["sim", "plan.toml", "--mtu", "1024"]);
        let told = "'[PLAN.toml]' cannot be used with '--mtu <BYTES>'; see farwrite sim";
        assert!(message.ends_with(told), "{message}");
        let message = line(&["dance"]);
        assert!(message.ends_with("see farwrite"), "{message}");
        assert!(message.contains("dance"), "{message}");
        assert!(!message.contains('\n'), "{message}");
    }
}
