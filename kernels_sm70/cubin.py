# SPDX-License-Identifier: Apache-2.0
"""Read a cubin's ELF sections: registers, shared and local memory, and instruction counts.

No disassembler is needed: since Volta an instruction is 16 bytes and its opcode is the low 12 bits.
The opcode numbers below were matched against nvdisasm's listing of the same cubins.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

INSTRUCTION_BYTES = 16
OPCODE_MASK = 0xFFF
OPCODES = {
    "HMMA": frozenset({0x236, 0x23C}),
    "LDL": frozenset({0x983}),
    "STL": frozenset({0x387}),
    "LDG": frozenset({0x381, 0x981}),
    "STG": frozenset({0x386, 0x986}),
}
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_ATTRIBUTE_SIZED = 0x04
_REGCOUNT, _FRAME_SIZE, _MIN_STACK = 0x2F, 0x11, 0x12


class CubinError(ValueError):
    """The bytes are not a cubin this reader understands."""


@dataclass(frozen=True, slots=True)
class KernelImage:
    """Static facts of one kernel in a cubin; sizes in bytes, counts in instructions."""

    entry: str
    registers: int
    static_shared_bytes: int
    frame_bytes: int
    instructions: int
    hmma: int
    local_loads: int
    local_stores: int
    global_loads: int
    global_loads_16: int
    global_stores: int


@dataclass(frozen=True, slots=True)
class _Section:
    name: str
    kind: int
    info: int
    data: bytes
    size: int


def read_cubin(cubin: bytes) -> dict[str, KernelImage]:
    """Return the kernels of a cubin by entry name.

    Raises:
        CubinError: if the bytes are not a little-endian 64-bit ELF with kernel sections.
    """
    if cubin[:6] != b"\x7fELF\x02\x01":
        raise CubinError(f"not a 64-bit little-endian ELF: begins with {cubin[:6]!r}")
    sections = _sections(cubin)
    attributes = _attributes(sections)
    images = {}
    for name, section in sections.items():
        if name.startswith(".text."):
            entry = name.removeprefix(".text.")
            images[entry] = _image(entry, section, sections, attributes.get(entry, {}))
    if not images:
        raise CubinError("no .text.<kernel> section; compile to a cubin, not to PTX")
    return images


def _sections(cubin: bytes) -> dict[str, _Section]:
    (offset,) = struct.unpack_from("<Q", cubin, 0x28)
    size, count, names_index = struct.unpack_from("<HHH", cubin, 0x3A)
    headers = [_SECTION.unpack_from(cubin, offset + i * size) for i in range(count)]
    names = headers[names_index][4]
    found = {}
    for name_at, kind, _, _, start, length, _, info, _, _ in headers:
        end = cubin.index(b"\0", names + name_at)
        name = cubin[names + name_at : end].decode()
        no_bits = kind == 8
        found[name] = _Section(
            name, kind, info, b"" if no_bits else cubin[start : start + length], length
        )
    return found


def _symbol_names(sections: dict[str, _Section]) -> list[str]:
    table, strings = sections[".symtab"].data, sections[".strtab"].data
    names = []
    for at in range(0, len(table), _SYMBOL.size):
        (name_at, *_) = _SYMBOL.unpack_from(table, at)
        names.append(strings[name_at : strings.index(b"\0", name_at)].decode())
    return names


def _attributes(sections: dict[str, _Section]) -> dict[str, dict[int, int]]:
    """Per kernel: the integers of .nv.info, by attribute number."""
    names, data = _symbol_names(sections), sections[".nv.info"].data
    found: dict[str, dict[int, int]] = {}
    at = 0
    while at + 4 <= len(data):
        form, attribute, length = struct.unpack_from("<BBH", data, at)
        at += 4
        if form != _ATTRIBUTE_SIZED:
            continue
        if length == 8:
            symbol, value = struct.unpack_from("<II", data, at)
            found.setdefault(names[symbol], {})[attribute] = value
        at += length
    return found


def _image(
    entry: str, text: _Section, sections: dict[str, _Section], attributes: dict[int, int]
) -> KernelImage:
    words = [
        struct.unpack_from("<QQ", text.data, at)
        for at in range(0, len(text.data), INSTRUCTION_BYTES)
    ]
    count = {
        name: sum((low & OPCODE_MASK) in codes for low, _ in words)
        for name, codes in OPCODES.items()
    }
    wide = sum(
        (low & OPCODE_MASK) in OPCODES["LDG"] and ((high >> 9) & 7) == 6 for low, high in words
    )
    shared = sections.get(f".nv.shared.{entry}")
    # Volta keeps the register count in the section header as well; both must agree when both exist.
    registers = attributes.get(_REGCOUNT, text.info >> 24)
    return KernelImage(
        entry=entry,
        registers=registers,
        static_shared_bytes=shared.size if shared else 0,
        frame_bytes=max(attributes.get(_FRAME_SIZE, 0), attributes.get(_MIN_STACK, 0)),
        instructions=len(words),
        hmma=count["HMMA"],
        local_loads=count["LDL"],
        local_stores=count["STL"],
        global_loads=count["LDG"],
        global_loads_16=wide,
        global_stores=count["STG"],
    )
