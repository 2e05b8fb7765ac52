"""trace.json (formats/trace.schema.json) and its Markdown table."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from evalharness import __version__
from evalharness.store import write_atomically, write_json
from evalharness.text import printable
from evalharness.trace.attribution import DeviceTime, Gap, Sum
from evalharness.trace.chrome import Trace
from evalharness.trace.purity import Purity

FORMAT = "evalharness/trace/1"
NAME_LIMIT = 2000  # a template's full name; longer ones are cut, and say so
TABLE_KERNELS = 20
TABLE_NAME = 90


def build_document(
    traces: Sequence[Trace],
    devices: Sequence[DeviceTime],
    purity: Purity,
    *,
    families: Mapping[str, str],
    run: Mapping[str, Any] | None,
    profile: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """Return trace.json's content.

    families: {"name", "sha256"} of the list used. run: which arm of which run, None for a file.
    profile: how the profile was asked for, None for a file.
    """
    return {
        "format": FORMAT,
        "created_utc": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "harness_version": __version__,
        "run": dict(run) if run is not None else None,
        "profile": dict(profile) if profile is not None else None,
        "families": dict(families),
        "files": [_file(trace) for trace in traces],
        "purity": {
            "pure": purity.pure,
            "witnesses": list(purity.witnesses),
            "problems": list(purity.problems),
            "steps": purity.steps,
            "step_kinds": dict(purity.step_kinds),
        },
        "devices": [_device(device, purity.steps) for device in devices],
    }


def _file(trace: Trace) -> dict[str, Any]:
    return {
        "name": printable(trace.name),
        "sha256": trace.sha256,
        "bytes": trace.size_bytes,
        "kind": trace.kind,
        "vllm_version": trace.vllm_version,
    }


def _device(device: DeviceTime, steps: int) -> dict[str, Any]:
    return {
        "file": printable(device.file),
        "device": device.device,
        "device_name": device.device_name,
        "lanes": device.lanes,
        "activities": device.activities,
        "envelope_ns": device.envelope_ns,
        "busy_ns": device.busy_ns,
        "kernels_ns": device.kernels_ns,
        "overlap_ns": device.overlap_ns,
        "gap_ns": device.gap_ns,
        "gaps": device.gaps,
        "in_graph_ns": device.in_graph_ns,
        "per_step": _per_step(device, steps),
        "largest_gaps": [_gap(gap) for gap in device.largest_gaps],
        "families": [_family(one, device.kernels_ns) for one in device.families],
        "kernels": [_kernel(one) for one in device.kernels],
        "unknown": [_name(one.name) for one in device.unknown],
    }


def _per_step(device: DeviceTime, steps: int) -> dict[str, float] | None:
    if not steps:
        return None
    return {
        "kernels_ns": round(device.kernels_ns / steps, 1),
        "busy_ns": round(device.busy_ns / steps, 1),
        "envelope_ns": round(device.envelope_ns / steps, 1),
    }


def _gap(gap: Gap) -> dict[str, Any]:
    return {
        "length_ns": gap.length_ns,
        "after": _name(gap.after),
        "before": _name(gap.before),
    }


def _family(one: Sum, total_ns: int) -> dict[str, Any]:
    return {
        "family": one.name,
        "time_ns": one.time_ns,
        "share": round(one.time_ns / total_ns, 6) if total_ns else 0.0,
        "calls": one.calls,
    }


def _kernel(one: Sum) -> dict[str, Any]:
    return {
        "name": _name(one.name),
        "family": one.family,
        "time_ns": one.time_ns,
        "calls": one.calls,
        "in_graph_ns": one.in_graph_ns,
    }


def _name(name: str) -> str:
    text = printable(name)
    return text if len(text) <= NAME_LIMIT else f"{text[: NAME_LIMIT - 3]}..."


def write_document(document: Mapping[str, Any], folder: Path) -> tuple[Path, Path]:
    """Write folder/trace.json and folder/trace.md; returns their paths. Raises StoreError."""
    write_json(folder / "trace.json", document)
    write_atomically(folder / "trace.md", markdown(document).encode("utf-8"))
    return folder / "trace.json", folder / "trace.md"


def markdown(document: Mapping[str, Any]) -> str:
    """Return the tables: what was traced, families by device, the longest kernels, unknown ones."""
    lines = [f"# Where the time goes: {_subject(document)}", ""]
    lines += [_purity(document["purity"]), ""]
    for device in document["devices"]:
        lines += [*_heading(device), "", *_families(device), "", *_kernels(device), ""]
        lines += _unknown(device)
    lines.append(
        "Measured with the profiler on, which slows a step: read shares, not speeds. Families sum "
        "the kernels' own times, so time that overlaps is in them more than once."
    )
    return "\n".join(lines) + "\n"


def _subject(document: Mapping[str, Any]) -> str:
    run, profile = document["run"], document["profile"]
    if run is None:
        return ", ".join(_cell(one["name"]) for one in document["files"])
    return _cell(f"arm {run['arm']}, C{profile['concurrency']}")


def _purity(purity: Mapping[str, Any]) -> str:
    kinds = ", ".join(f"{count} steps with {kind}" for kind, count in purity["step_kinds"].items())
    shown = " and ".join(purity["witnesses"])
    if purity["pure"]:
        return f"Decode and nothing else ({shown}): {kinds or 'its steps are not annotated'}."
    if purity["pure"] is None:
        return "**Not shown to be pure decode**: the trace has no annotated steps."
    return f"**Refused**: {_cell('; '.join(purity['problems']))}."


def _heading(device: Mapping[str, Any]) -> list[str]:
    name = f" ({device['device_name']})" if device["device_name"] else ""
    ms = {key: device[key] / 1e6 for key in ("envelope_ns", "busy_ns", "overlap_ns", "gap_ns")}
    lines = [
        _cell(f"## Device {device['device']}{name}, {device['file']}"),
        "",
        f"Envelope {ms['envelope_ns']:.3f} ms, busy {ms['busy_ns']:.3f} ms, overlap "
        f"{ms['overlap_ns']:.3f} ms, {device['gaps']} gaps of {ms['gap_ns']:.3f} ms together; "
        f"{device['activities']} activities on {device['lanes']} lanes, "
        f"{device['in_graph_ns'] / 1e6:.3f} ms of kernels launched by CUDA graphs.",
    ]
    if device["largest_gaps"]:
        gap = device["largest_gaps"][0]
        lines.append(
            f"Largest gap {gap['length_ns'] / 1e3:.1f} us, after `{_short(gap['after'])}` and "
            f"before `{_short(gap['before'])}`."
        )
    return lines


def _families(device: Mapping[str, Any]) -> list[str]:
    per_step = device["per_step"]
    steps = device["kernels_ns"] / per_step["kernels_ns"] if per_step else None
    lines = ["| family | ms | share | us a step | calls |", "|---|---:|---:|---:|---:|"]
    for row in device["families"]:
        each = f"{row['time_ns'] / steps / 1e3:.1f}" if steps else ""
        lines.append(
            f"| {_cell(row['family'])} | {row['time_ns'] / 1e6:.3f} | {row['share']:.1%} | {each} "
            f"| {row['calls']} |"
        )
    return lines


def _kernels(device: Mapping[str, Any]) -> list[str]:
    kernels = device["kernels"][:TABLE_KERNELS]
    lines = [f"The {len(kernels)} longest of {len(device['kernels'])} kernels:", ""]
    lines += ["| kernel | family | ms | calls |", "|---|---|---:|---:|"]
    lines += [
        f"| `{_short(row['name'])}` | {_cell(row['family'])} | {row['time_ns'] / 1e6:.3f} "
        f"| {row['calls']} |"
        for row in kernels
    ]
    return lines


def _unknown(device: Mapping[str, Any]) -> list[str]:
    if not device["unknown"]:
        return []
    lines = [f"In no family ({len(device['unknown'])}); add them to a families file:", ""]
    return [*lines, *(f"- `{_short(name)}`" for name in device["unknown"]), ""]


def _short(name: str) -> str:
    text = _cell(name)
    return text if len(text) <= TABLE_NAME else f"{text[: TABLE_NAME - 3]}..."


def _cell(text: str) -> str:
    """Return text that cannot break a Markdown table or its code spans."""
    return printable(text).replace("|", "\\|").replace("`", "'").replace("\n", " ")
