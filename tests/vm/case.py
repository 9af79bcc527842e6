"""One case."""


def case(name, limit_s, *commands, **more):
    """Return a case whose programs run outside of the namespace `peer`, if they do not name it."""
    programs = [command if isinstance(command, dict) else {"command": command} for command in commands]
    return {"name": name, "limit_s": limit_s, "programs": programs} | more
