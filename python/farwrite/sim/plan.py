"""Plans, which can be dicts, text or files."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

from farwrite import _native

#: A plan as a dict of its keys, as its TOML text, or as the path of a file with this text, such as
#: ``pathlib.Path("plan.toml")``. A `str` is always text.
Plan: TypeAlias = Mapping[str, Any] | str | PathLike[str]

# The most characters of a plan in an error: those of a long path.
MOST_SHOWN = 200


def to_toml(plan: Mapping[str, Any]) -> str:
    """Return the TOML text of a plan that is a dict.

    Parameters
    ----------
    plan
        The keys of the plan. A table is a dict. A key whose value is None is left out.

    Examples
    --------
    >>> print(to_toml({"seeds": 3, "transport": ["roce", "farwrite-ec-mds:32,8"]}), end="")
    "seeds" = 3
    "transport" = ["roce", "farwrite-ec-mds:32,8"]
    """
    if not isinstance(plan, Mapping):
        raise TypeError(f"the plan must be a dict, not {plan!r}")
    pairs = ((key, value) for key, value in plan.items() if value is not None)
    return "".join(f"{_key(key)} = {_value(key, value)}\n" for key, value in pairs)


def _value(key: str, value: Any) -> str:
    """Return a value in TOML, which writes strings, finite numbers and booleans as JSON does."""
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(float(value))
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    if isinstance(value, Mapping):
        pairs = ((name, inner) for name, inner in value.items() if inner is not None)
        inner = ", ".join(f"{_key(name)} = {_value(f'{key}.{name}', inner)}" for name, inner in pairs)
        return f"{{ {inner} }}"
    if isinstance(value, Sequence):
        return f"[{', '.join(_value(key, inner) for inner in value)}]"
    if hasattr(value, "tolist"):  # numbers and arrays of NumPy
        return _value(key, value.tolist())
    raise TypeError(f"{key} = {value!r}: a plan has text, numbers, booleans, lists and dicts")


def _key(key: object) -> str:
    if not isinstance(key, str):
        raise TypeError(f"{key!r}: keys of a plan are text")
    return _text(key)


def _text(text: str) -> str:
    # Unlike JSON, TOML has no DEL in a text.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def text_of(plan: Plan) -> tuple[str, Path]:
    """Return the text of a plan, and the folder of the files that the plan names."""
    if isinstance(plan, Mapping):
        return to_toml(plan), Path()
    if isinstance(plan, PathLike):
        path = Path(plan)
        return _native.plan_text(path), path.parent
    if isinstance(plan, str):
        line = plan.strip()
        if line and "=" not in line and "\n" not in line:
            raise ValueError(
                f"the plan {line[:MOST_SHOWN]!r} is one line without a key: if it is the path of a file, "
                "pass it as a pathlib.Path"
            )
        return plan, Path()
    raise TypeError(f"a plan is a dict, TOML text or a path, not {type(plan).__name__}")
