"""Reads a dashboard by the schema of Grafana, as its foundation SDK for Python has it, and says what the schema does not
know: keys, and values of another kind."""

import enum
import json
import sys
import typing

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

problems = []


def look_for_lost(ours, theirs, path):
    """What the schema does not have is not in what it makes of it."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key, value in ours.items():
            if key in theirs:
                look_for_lost(value, theirs[key], f"{path}.{key}")
            else:
                problems.append(f"{path} has no {key}")
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for place, (one, other) in enumerate(zip(ours, theirs)):
            look_for_lost(one, other, f"{path}[{place}]")
    elif ours != theirs:
        problems.append(f"{path} becomes {theirs} of {ours}")


def is_of_kind(value, kind):
    """Whether a value is of the kind that a field has."""
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if kind in (typing.Any, object):
        return True
    if origin is typing.Union:
        return any(is_of_kind(value, part) for part in parts)
    if origin is typing.Literal:
        return value in parts
    if origin is list:
        return isinstance(value, list) and all(is_of_kind(it, parts[0]) for it in value)
    if origin is dict:
        return isinstance(value, dict) and all(is_of_kind(it, parts[1]) for it in value.values())
    if isinstance(kind, enum.EnumType):
        return isinstance(value, kind) or value in [it.value for it in kind]
    if kind is float:
        kind = (int, float)
    return isinstance(value, kind) and not (isinstance(value, bool) and kind is not bool)


def look_at_kinds(value, path):
    """The fields of all objects."""
    if isinstance(value, list):
        for place, part in enumerate(value):
            look_at_kinds(part, f"{path}[{place}]")
    elif type(value).__module__.startswith("grafana_foundation_sdk.models") and not isinstance(value, enum.Enum):
        for name, kind in typing.get_type_hints(type(value)).items():
            part = getattr(value, name)
            if not is_of_kind(part, kind):
                problems.append(f"{path}.{name} is {part!r}, and no {kind}")
            look_at_kinds(part, f"{path}.{name}")


register_default_plugins()
with open(sys.argv[1]) as file:
    told = json.load(file)
dashboard = Dashboard.from_json(told)
look_for_lost(told, json.loads(json.dumps(dashboard, cls=JSONEncoder)), "dashboard")
look_at_kinds(dashboard, "dashboard")
print("\n".join(problems) or f"ok: {len(dashboard.panels)} panels")
sys.exit(1 if problems else 0)
