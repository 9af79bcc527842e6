//! The `farwrite` program. It is a library so that fuzz targets reach its readers of files; the interface
//! is its command line.

mod accepting;
mod addresses;
mod args;
mod audit;
mod axis;
mod boxes;
mod chart;
mod codes;
mod console;
mod cp;
mod demo;
mod device;
mod dry_run;
mod exit;
mod files;
mod forward;
#[doc(hidden)]
pub mod fuzzing;
mod interrupt;
mod key;
mod keygen;
mod known_paths;
mod link;
mod link_file;
mod memory;
mod metrics;
mod outcome;
mod pages;
mod peers;
mod perf;
mod pipe;
mod plan;
mod policy;
mod probe;
mod proc;
mod rate_file;
mod recv;
mod rsh;
mod send;
mod serving;
mod sim;
mod standard;
mod supervisor;
mod svg;
mod table;
mod toml_error;
mod trace;
mod transfer_metrics;
mod tree_args;

use std::process::ExitCode;

use args::{Cli, Command};
use console::Console;
use exit::{Exit, Failure};
use extensions::Extensions;

pub use farwrite_experiment::extensions;

/// Runs the program with the arguments of this process.
#[must_use]
pub fn main() -> ExitCode {
    main_with(&Extensions::new())
}

/// The same, with controllers, load balancers and repairs for `farwrite sim` of another crate.
#[must_use]
pub fn main_with(extensions: &Extensions) -> ExitCode {
    let cli = match Cli::parse_args() {
        Ok(cli) => cli,
        Err(refused) => return refused.show(),
    };
    let carries_data = cli.command.writes_data();
    let json = (cli.json, cli.json_lines);
    let console = Console::start(json, cli.quiet, cli.name, carries_data);
    let result = match carries_data && console.is_json() {
        false => run(&cli.command, &console, extensions),
        true => {
            let what = "--json: standard output carries the data of this command";
            Err(Failure::new(Exit::Usage, what))
        }
    };
    if let Err(failure) = &result {
        console.fail(failure);
    }
    match (result, console.finish()) {
        (Err(failure), _) | (Ok(_), Err(failure)) => failure.exit.into(),
        (Ok(code), Ok(())) => code,
    }
}

fn run(command: &Command, console: &Console, extensions: &Extensions) -> Result<ExitCode, Failure> {
    let done = |()| ExitCode::SUCCESS;
    match command {
        Command::Codes(args) => codes::run(args, console).map(done),
        Command::Completions(args) => pages::run_completions(args, console).map(done),
        Command::Cp(args) => cp::run(args, console),
        Command::Far(args) => cp::run_far(args, console),
        Command::Demo(args) => demo::run(args, console).map(done),
        Command::Forward(args) => forward::run(args, console),
        Command::Keygen(args) => keygen::run(args, console).map(done),
        Command::Link(args) => link::run(args, console),
        Command::Lowar(args) => boxes::run_lowar(args, console),
        Command::Man(args) => pages::run_man(args, console).map(done),
        Command::Netrt(args) => boxes::run_netrt(args, console),
        Command::Perf(args) => perf::run(args, console),
        Command::Plan(args) => plan::run(args, console).map(done),
        Command::Probe(args) => probe::run(args, console),
        Command::Recv(args) => recv::run(args, console),
        Command::Rsh(args) => Ok(rsh::run(args, console)),
        Command::Send(args) => send::run(args, console),
        Command::Sim(args) => sim::run(args, console, extensions).map(done),
        Command::Trace(args) => trace::run(args, console).map(done),
    }
}
