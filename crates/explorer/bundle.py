"""Makes the explorer one file: `bundle.py WASM OUT`. Takes what lies in `page/` and the model's WebAssembly.

Each JavaScript module becomes a function that returns what it exports, in the order in which they need
each other. Modules import by `import { a, b } from "./name.js";` and export functions and constants by name."""

import base64
import gzip
import hashlib
import pathlib
import re
import sys

PAGE = pathlib.Path(__file__).parent / "page"
IMPORT = re.compile(r'^import \{([^}]*)\} from "\./(\w+)\.js";$', re.MULTILINE)
EXPORT = re.compile(r"^export (?=(?:async )?(?:function|const) (\w+))", re.MULTILINE)


def joined(name):
    """The module `name` and all that it needs, as one script."""
    order = []

    def visit(module, path):
        if module in path:
            raise SystemExit(f"modules need each other in a circle: {' -> '.join([*path, module])}")
        if module in (done for done, _ in order):
            return
        text = (PAGE / f"{module}.js").read_text()
        for _, needed in IMPORT.findall(text):
            visit(needed, [*path, module])
        order.append((module, text))

    visit(name, [])
    return "".join(scoped(module, text) for module, text in order)


def scoped(module, text):
    """One module as a function that is called at once."""
    names = ", ".join(EXPORT.findall(text))
    body = EXPORT.sub("", IMPORT.sub(r"const {\1} = module_\2;", text))
    if re.search(r"^(import|export)\b", body, re.MULTILINE):
        raise SystemExit(f"{module}.js imports or exports in a way that bundle.py does not know")
    return f"const module_{module} = (() => {{\n{body}return {{ {names} }};\n}})();\n"


def sha256(text):
    """`text` as a content security policy names it."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def page(wasm):
    """The whole page."""
    script = '"use strict";\n' + joined("main")
    worker = '"use strict";\n' + joined("worker")
    style = (PAGE / "style.css").read_text()
    if "</script" in script + worker:
        raise SystemExit("a script contains </script, which would end it")
    # Nothing may be fetched; the worker's policy is the page's.
    policy = (f"default-src 'none'; script-src {sha256(script)} blob: 'wasm-unsafe-eval'; worker-src blob:; "
              f"style-src {sha256(style)}; img-src data:; base-uri 'none'; form-action 'none'")
    parts = {"policy": policy, "style": style, "script": script, "worker": worker,
             "wasm": base64.b64encode(gzip.compress(wasm, mtime=0)).decode()}
    return re.sub(r"@(\w+)@", lambda match: parts[match[1]], (PAGE / "index.html").read_text())


def main():
    """Reads, joins, writes."""
    wasm, out = map(pathlib.Path, sys.argv[1:])
    text = page(wasm.read_bytes())
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(text)
    print(f"{out}: {len(text.encode()):,} bytes; open it in a browser")


if __name__ == "__main__":
    main()
