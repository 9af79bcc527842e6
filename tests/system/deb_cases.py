"""The Debian package: the files that it installs, and the installed program."""

import gzip
import pathlib
import re
import shlex
import shutil
import subprocess

_ROOT = pathlib.Path(__file__).resolve().parents[2]


def run(report, program, directory):
    with report.case("the Debian package"):
        _installed(report, program, directory / "deb")


def _run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _installed(report, program, directory):
    package = _run(_ROOT / "dist/deb", program, directory).strip()
    there = directory / "there"
    _run("dpkg-deb", "--extract", package, there)
    wanted = ("usr/bin/farwrite", "usr/share/man/man1/farwrite.1.gz",
              "usr/share/bash-completion/completions/farwrite",
              "usr/share/zsh/vendor-completions/_farwrite",
              "usr/share/fish/vendor_completions.d/farwrite.fish",
              *(f"lib/systemd/system/farwrite-{unit}.service" for unit in ("recv", "peers", "lowar@", "netrt@")),
              "usr/lib/sysusers.d/farwrite.conf", "usr/share/doc/farwrite/README.md")
    missing = [name for name in wanted if not (there / name).is_file()]
    report.check("what people expect is in it", f"{missing} missing" if missing else None)
    version = _run(there / "usr/bin/farwrite", "--version").split()[1]
    field = _run("dpkg-deb", "--field", package, "Version").strip()
    report.check("its version is the program's", None if field == version else f"{field}")

    commands = [line.split()[0] for line in _run(program, "--help").split("Commands:\n")[1]
                .split("\n\n")[0].splitlines()]
    pages = {page.name for page in (there / "usr/share/man/man1").iterdir()}
    lost = [name for name in commands
            if name != "help" and f"farwrite-{name}.1.gz" not in pages]
    report.check("each command has a page", f"{lost} have none" if lost else None)
    page = gzip.decompress((there / "usr/share/man/man1/farwrite-send.1.gz").read_bytes())
    report.check("a page has the options and the examples",
                 None if b"\\-\\-psk\\-file" in page and b".SH EXAMPLES" in page else f"{page[:400]}")
    completed = _complete(there / "usr/share/bash-completion/completions/farwrite", "tr")
    report.check("bash completes `farwrite tr`", None if completed == ["trace"] else f"{completed}")
    _units(report, there)


def _complete(script, word):
    """Return the completions that bash offers for `word` as the first argument of farwrite."""
    text = f"""source {shlex.quote(str(script))}
COMP_WORDS=(farwrite {word}); COMP_CWORD=1
_farwrite farwrite {word} farwrite
printf '%s\\n' "${{COMPREPLY[@]}}" """
    return _run("bash", "-c", text).split()


def _units(report, there):
    """Check that each unit, and the OPTIONS in its comments, name options that the program has."""
    folder = there / "lib/systemd/system"
    for unit in sorted(folder.iterdir()):
        text = unit.read_text()
        start = re.search(r"^ExecStart=(.*)$", text, re.MULTILINE)[1]
        words = shlex.split(start)
        examples = [word for example in re.findall(r"OPTIONS=(.*)$", text, re.MULTILINE)
                    for word in shlex.split(example.rstrip('"'))]
        options = [word for word in words + examples
                   if word.startswith("--") and word != "--quiet"]
        command = next(word for word in words[1:] if not word.startswith("-"))
        known = set(re.findall(r"--[\w-]+", _run(there / "usr/bin/farwrite", command, "--help")))
        unknown = [option for option in options if option not in known]
        report.check(f"{unit.name}: its options are those of farwrite {command}",
                     f"{unknown}" if unknown or words[0] != "/usr/bin/farwrite" else None)
        if shutil.which("systemd-analyze"):
            report.check(f"{unit.name}: systemd takes it", _verify(unit, there))


def _verify(unit, there):
    """Return what systemd-analyze finds in a unit. It looks for the program that the unit starts, so the
    copy that it sees names the one of the package."""
    copy = there / unit.name
    program = str(there / "usr/bin/farwrite")
    copy.write_text(unit.read_text().replace("/usr/bin/farwrite", program))
    # Checks the units of the copy's folder only, and reads no pages of the manual.
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", copy], capture_output=True, text=True)
    found = [line for line in done.stderr.splitlines() if unit.name.split("@")[0] in line]
    return "; ".join(found) or (None if done.returncode == 0 else done.stderr)
