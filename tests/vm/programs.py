"""Reads cargo's messages about what it has built, and writes the path of each program by its name, as JSON."""

import json
import sys

messages = (json.loads(line) for line in sys.stdin if line.startswith("{"))
programs = {
    message["target"]["name"]: message["executable"]
    for message in messages
    if message["reason"] == "compiler-artifact" and message.get("executable")
}
json.dump(programs, sys.stdout)
