"""The cases that run in a guest.

A case has programs, which run at the same time and must all end with status 0; settings of netem for interfaces; and a
limit of time. `guest.py` describes the networks of a guest.
"""

import sys


def all_cases(programs):
    return [
        # Guests see the files of the host, and cannot change them.
        case("host-is-read-only", 10, ["sh", "-c", "test -e /etc/passwd && ! touch /etc/written-by-a-guest"]),
        # The kernel's driver and the library see the devices.
        case("devices", 30, ["sh", "-c", "for d in rxe0 rxe1 rxe2; do ibv_devinfo -v -d $d || exit 1; done"]),
        # One thread: the tests share two processors with the kernel's driver.
        case("contract", 200, [programs["contract"], "--test-threads=1"], environment={
            "FARWRITE_VERBS_DEVICE": "rxe0",
            "FARWRITE_VERBS_ADDRESSES": "10.1.0.1,10.1.0.2,10.1.0.3,fd01::1,fd01::2,fd01::3",
            "FARWRITE_VERBS_STRANGERS": "10.1.0.9,fd01::9",
        }),
    ]


def case(name, limit_s, *commands, **more):
    """A case whose programs run outside of the namespace `peer`, if they do not name it."""
    programs = [command if isinstance(command, dict) else {"command": command} for command in commands]
    return {"name": name, "limit_s": limit_s, "programs": programs} | more


def choose(programs, names):
    every = all_cases(programs)
    unknown = set(names) - {case["name"] for case in every}
    if unknown:
        sys.exit(f"no case is named {', '.join(sorted(unknown))}; cases are {', '.join(c['name'] for c in every)}")
    return [case for case in every if not names or case["name"] in names]
