//! `farwrite completions` and `farwrite man`: generated from the description of the command line.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::{Args, Command};
use clap_complete::Shell;
use clap_mangen::Man;
use serde_json::json;

use crate::args::{Cli, has_indented_lines};
use crate::console::Console;
use crate::exit::{Exit, Failure, OrExit};
use crate::files;

const SHELL_EXAMPLES: &str = "\
Examples:
  farwrite completions bash > ~/.local/share/bash-completion/completions/farwrite
  farwrite completions zsh > ~/.zfunc/_farwrite
  farwrite completions fish > ~/.config/fish/completions/farwrite.fish";

/// Prints a script with which a shell completes the commands and options of farwrite.
#[derive(Debug, Args)]
#[command(after_help = SHELL_EXAMPLES)]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_name = "SHELL", value_enum)]
    shell: Shell,
}

const MAN_EXAMPLES: &str = "\
Examples:
  farwrite man ~/.local/share/man/man1 && man -M ~/.local/share/man farwrite-send";

/// Writes manual pages into a directory: farwrite.1, and a page for each command.
#[derive(Debug, Args)]
#[command(after_help = MAN_EXAMPLES)]
pub(crate) struct ManArgs {
    /// The directory; it is made if it is not there
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

pub(crate) fn run_completions(args: &CompletionsArgs, console: &Console) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::described(), "farwrite", &mut script);
    if console.is_json() {
        return console.json(&json!({ "script": String::from_utf8_lossy(&script) }));
    }
    match io::stdout().write_all(&script) {
        // The reader has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written.or_exit(Exit::Files, "printing the script"),
    }
}

pub(crate) fn run_man(args: &ManArgs, console: &Console) -> Result<(), Failure> {
    let dir = &args.dir;
    files::make_directory(dir)?;
    // The pages of `help` would have no more than the others.
    let mut command = without_help(Cli::described());
    command.build();
    let mut pages = Vec::new();
    write_pages(dir, &command, &mut pages)?;
    console.say(format_args!("{} pages in {}", pages.len(), dir.display()));
    console.json(&json!({ "pages": pages }))
}

/// Writes the page of a command and those of its subcommands.
fn write_pages(dir: &Path, command: &Command, pages: &mut Vec<PathBuf>) -> Result<(), Failure> {
    // `farwrite codes encode` has the page farwrite-codes-encode.1, with the same name in its
    // title.
    let name = command.get_display_name().unwrap_or(command.get_name());
    let page = dir.join(format!("{name}.1"));
    let mut text = Vec::new();
    let rendered = Man::new(command.clone()).render(&mut text);
    rendered
        .and_then(|()| fs::write(&page, with_examples(&text)))
        .or_exit(Exit::Files, format_args!("writing {}", page.display()))?;
    pages.push(page);
    for below in command.get_subcommands() {
        write_pages(dir, below, pages)?;
    }
    Ok(())
}

/// A page whose examples have their own heading and keep their lines: the generator puts the text after the options
/// under `EXTRA`, and pages fill lines.
fn with_examples(page: &[u8]) -> String {
    let page = String::from_utf8_lossy(page);
    let Some((before, rest)) = page.split_once(".SH EXTRA\n") else {
        return page.into_owned();
    };
    let (text, after) = rest
        .find("\n.SH ")
        .map_or((rest, ""), |at| rest.split_at(at));
    let (heading, text) = match text.strip_prefix("Examples:\n") {
        Some(text) => ("EXAMPLES", text),
        None => ("EXTRA", text),
    };
    let paragraph = |lines: &str| match has_indented_lines(lines) {
        true => format!(".nf\n{}\n.fi", lines.trim_end()),
        false => lines.to_owned(),
    };
    let paragraphs: Vec<_> = text.split("\n\n").map(paragraph).collect();
    format!("{before}.SH {heading}\n{}{after}", paragraphs.join("\n\n"))
}

/// Leaves out the command `help` everywhere.
fn without_help(command: Command) -> Command {
    let command = command.disable_help_subcommand(true);
    command.mut_subcommands(without_help)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_on_a_page_keep_their_lines() {
        let page = b".SH OPTIONS\no\n.SH EXTRA\nExamples:\n  a\n  b\n\nText.\n\nMore:\n  c\n.SH VERSION\nv1\n";
        let want = ".SH OPTIONS\no\n.SH EXAMPLES\n.nf\n  a\n  b\n.fi\n\nText.\n\n.nf\nMore:\n  c\n.fi\n.SH VERSION\nv1\n";
        assert_eq!(with_examples(page), want);
        assert_eq!(with_examples(b".SH OPTIONS\no\n"), ".SH OPTIONS\no\n");
        let text_alone = b".SH EXTRA\nText.\n";
        assert_eq!(with_examples(text_alone).as_bytes(), text_alone);
    }
}
