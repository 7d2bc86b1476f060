"""Reads timelines by the schema that Perfetto publishes, as its package for Python has it, and says what is not right.

The first one has both ends of each request, which goes once. Of others a part may be lost, or not traced."""

import sys
from collections import Counter

from google.protobuf import unknown_fields
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as schema

problems = []


def look_for_unknown(message, path):
    """Fields that the schema does not have."""
    for field in unknown_fields.UnknownFieldSet(message):
        problems.append(f"{path} has field {field.field_number}, which the schema does not know")
    for field, value in message.ListFields():
        if field.type == field.TYPE_MESSAGE:
            for part in value if field.is_repeated else [value]:
                look_for_unknown(part, f"{path}.{field.name}")


def look_at(path, is_first):
    """All of a timeline."""
    trace = schema.Trace()
    with open(path, "rb") as file:
        trace.ParseFromString(file.read())
    look_for_unknown(trace, "trace")
    tracks = {it.track_descriptor.uuid for it in trace.packet if it.HasField("track_descriptor")}
    parents = {
        it.track_descriptor.parent_uuid
        for it in trace.packet
        if it.HasField("track_descriptor") and it.track_descriptor.HasField("parent_uuid")
    }
    events = [it.track_event for it in trace.packet if it.HasField("track_event")]
    types = Counter(schema.TrackEvent.Type.Name(it.type) for it in events)
    depths, begun, ended = Counter(), Counter(), Counter()
    for event in events:
        depths[event.track_uuid] += {event.TYPE_SLICE_BEGIN: 1, event.TYPE_SLICE_END: -1}.get(event.type, 0)
        if depths[event.track_uuid] < 0:
            problems.append(f"a slice of track {event.track_uuid} ends before it begins")
        begun.update(event.flow_ids)
        ended.update(event.terminating_flow_ids)
    for used in {it.track_uuid for it in events} | parents:
        if used not in tracks:
            problems.append(f"track {used} is used and not described")
    for track, depth in depths.items():
        if depth:
            problems.append(f"{depth} slices of track {track} do not end")
    if is_first and (begun != ended or set(begun.values()) - {1}):
        problems.append(f"flows begin as {begun} and end as {ended}")
    if not events or is_first and not (types["TYPE_SLICE_BEGIN"] and types["TYPE_COUNTER"] and begun):
        problems.append(f"something is missing: {types}, {len(begun)} flows")
    return f"{len(events)} events on {len(tracks)} tracks, {len(begun)} flows"


for path in sys.argv[1:]:
    before = len(problems)
    told = look_at(path, path == sys.argv[1])
    print(f"{path}:", "\n".join(problems[before:]) or f"ok: {told}")
sys.exit(1 if problems else 0)
