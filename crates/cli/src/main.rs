//! The `farwrite` program.

mod args;
mod choice;
mod codes;
mod console;
mod demo;
mod exit;
mod interrupt;
mod keygen;
mod loss;
mod memory;
mod parity;
mod plan;
mod recv;
mod send;
mod table;
mod transfer;
mod units;

use std::process::ExitCode;

use args::{Cli, Command};
use console::Console;

fn main() -> ExitCode {
    let cli = match Cli::parse_args() {
        Ok(cli) => cli,
        Err(refused) => return refused.show(),
    };
    let console = Console::new(cli.json, cli.quiet);
    let result = match cli.command {
        Command::Codes(args) => codes::run(&args, &console).map(|()| ExitCode::SUCCESS),
        Command::Demo(args) => demo::run(&args, &console).map(|()| ExitCode::SUCCESS),
        Command::Keygen(args) => keygen::run(&args, &console).map(|()| ExitCode::SUCCESS),
        Command::Plan(args) => plan::run(&args, &console).map(|()| ExitCode::SUCCESS),
        Command::Recv(args) => recv::run(&args, &console),
        Command::Send(args) => send::run(&args, &console),
    };
    match result {
        Ok(code) => code,
        Err(failure) => {
            console.fail(&failure);
            failure.exit.into()
        }
    }
}
