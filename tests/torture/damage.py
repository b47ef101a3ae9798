"""Damage to files: their structure first (fields, headers, types, sizes), then their bytes."""

import ast
import io
import json
import re
import struct
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np

Random = np.random.Generator
DEEP = 3000  # levels of nesting that a parser may not survive


def pick(rng: Random, choices: Any) -> Any:
    """Return one of these, unchanged."""
    return choices[int(rng.integers(len(choices)))]


def odd_values(rng: Random) -> Any:
    """Return values that few readers expect."""
    values: list[Callable[[], Any]] = [
        lambda: None,
        lambda: True,
        lambda: -1,
        lambda: 0,
        lambda: 1,
        lambda: 2**31,
        lambda: 2**63,
        lambda: 10**30,
        lambda: 0.5,
        lambda: 1e308,
        lambda: float("nan"),
        lambda: float("inf"),
        lambda: "",
        lambda: "0",
        lambda: "x" * 3000,
        lambda: "a\nb",
        lambda: "../../../etc/passwd",
        lambda: "/etc/passwd",
        lambda: "a\0b",
        lambda: "\ud800",
        lambda: "manifest.json",
        list,
        dict,
        lambda: [None],
        lambda: [[[]]],
        lambda: {"": {}},
        lambda: {"0": [1, 2, 3]},
        lambda: list(range(50)),
    ]
    return pick(rng, values)()


# --- JSON ------------------------------------------------------------------------------------------------------------


def places(document: Any) -> list[tuple[Any, Any]]:
    """Return every container of a document with each of its keys."""
    found = []
    keys = document if isinstance(document, dict) else range(len(document)) if isinstance(document, list) else ()
    for key in keys:
        found.append((document, key))
        found += places(document[key])
    return found


def in_json(rng: Random, data: bytes) -> bytes:
    """Change one or two fields: other values, types, keys, order, sizes; sometimes the text itself."""
    document = json.loads(data)
    for _ in range(int(rng.integers(1, 3))):
        spots = places(document)
        if not spots:
            break
        container, key = pick(rng, spots)
        how = int(rng.integers(8))
        if how <= 2:
            container[key] = odd_values(rng)
        elif how == 3:
            del container[key]
        elif how == 4:
            other, at = pick(rng, spots)
            if at in (other if isinstance(other, dict) else range(len(other))):
                container[key], other[at] = other[at], container[key]
            try:
                json.dumps(document)
            except ValueError:  # it holds itself now
                return in_json(rng, data)
        elif how == 5 and isinstance(container, dict):
            container[pick(rng, [f"{key} ", key.upper(), "", "../x", "files"])] = container.pop(key)
        elif how == 6:
            container[key] = nudged(rng, container[key])
        elif isinstance(container, list):
            container.insert(key, odd_values(rng))
        else:
            container[pick(rng, ["extra", "\ud800", "__class__", "files"])] = odd_values(rng)
    text = json.dumps(document).encode()
    how = int(rng.integers(40))
    if how == 0:
        return text.replace(b"1", b"1" * 5000, 1)
    if how == 1:
        return text[:-1] + b', "deep": ' + b"[" * DEEP + b"]" * DEEP + b"}"
    if how == 2:
        return b"\xef\xbb\xbf" + text
    if how == 3:
        return text.replace(b"{", b'{"format": 1, ', 1)
    return text


def nudged(rng: Random, value: Any) -> Any:
    """Almost the same value."""
    if isinstance(value, bool) or value is None:
        return not value
    if isinstance(value, int):
        return value + int(pick(rng, [-1, 1, 2, -value, value, 10**6]))
    if isinstance(value, float):
        return -value
    if isinstance(value, str):
        at = int(rng.integers(len(value) + 1))
        return pick(rng, [value[:at], value + value, value[:at] + "0" + value[at + 1 :], value.upper()])
    if isinstance(value, list):
        return pick(rng, [value[:-1], value + value, value[::-1], value[:1], [str(v) for v in value]])
    return dict(list(value.items())[:-1])


# --- .npy and .npz ---------------------------------------------------------------------------------------------------

DTYPES = [
    "<f8", "<f4", ">f2", "<i8", "|u1", "|i1", "<u2", "|b1", "|O", "<c16", "<U3", "|S5", "|S0", "|V8", "<U0", "<M8[ns]",
    "<f16", "|u9", "float64", "object", "", "nonsense", "<f8, <i4", "|S99999999999", "(2,)<f4", "<m8[Y]",
]  # fmt: skip


def in_npy(rng: Random, data: bytes) -> bytes:
    """Write another header over the same bytes, or bytes that do not match the header."""
    length = struct.unpack("<H", data[8:10])[0]
    header, body = data[10 : 10 + length], data[10 + length :]
    told = ast.literal_eval(header.decode("latin-1"))
    how = int(rng.integers(11))
    if how == 0:
        told["descr"] = pick(rng, DTYPES)
    elif how == 1:
        told["descr"] = pick(rng, [[("a", "<f4"), ("b", "<i4")], [("a", "O")], None, 3, [], ("<f4", (2,)), {"x": 1}])
    elif how == 2:
        told["shape"] = odd_shape(rng, told["shape"])
    elif how == 3:
        told["fortran_order"] = pick(rng, [True, 1, None, "yes", [], not told["fortran_order"]])
    elif how == 4:
        told.pop(pick(rng, sorted(told)))
    elif how == 5:
        told[pick(rng, ["extra", "descr ", 3])] = odd_values(rng)
    elif how == 6:
        body = pick(rng, [body[: len(body) // 2], body[:-1], body + b"\0" * 7, b"", body * 2])
    elif how == 7:
        text = pick(
            rng, [b"{", b"(" * 200, b"[" * 9000, b"__import__('os')", b"{'descr': " * 40, b"\0" * 20, b"1" * 5000]
        )
        return npy(text, body, int(rng.integers(1, 4)))
    elif how == 8:
        return npy(repr(told).encode("latin-1", "replace"), body, pick(rng, [0, 2, 3, 4, 9, 255]))
    elif how == 9:
        size = pick(rng, [0, 1, 65535, length - 1, length + 1])
        return data[:8] + struct.pack("<H", size) + data[10:]
    else:
        return in_bytes(rng, data)
    return npy(repr(told).encode("latin-1", "replace"), body)


def odd_shape(rng: Random, shape: tuple[int, ...]) -> Any:
    """A shape that the bytes do not have, or that no array has."""
    size = int(np.prod(shape))
    shapes: list[Any] = [
        shape[::-1], (size,), (*shape, 1), (1,) * 33 + shape, (0, *shape[1:]), shape[:-1], (), (-1, *shape[1:]),
        (2**62, 2), (2**63,), (10**30,), (2**40, 1, 1), (2**40, 0, 2), [*shape], "3", None, (1.0, 2), (True, size),
        (*shape[:-1], shape[-1] + 1) if shape else (9,), (*shape[:-1], max(0, shape[-1] - 1)) if shape else (9,),
        (size, 1, 1), (1, 1, size), (1, size, 1), (1, size // 2, 2),
    ]  # fmt: skip
    return pick(rng, shapes)


def npy(header: bytes, body: bytes, version: int = 1) -> bytes:
    """A .npy file with this header."""
    size = struct.pack("<H" if version == 1 else "<I", min(len(header) + 1, 65535))
    return b"\x93NUMPY" + bytes([version % 256, 0]) + size + header + b"\n" + body


def array_bytes(array: Any) -> bytes:
    """An array as a .npy file."""
    out = io.BytesIO()
    np.save(out, array, allow_pickle=False)
    return out.getvalue()


# The last two take most of the time, so they are rarer.
PACKINGS = [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED] * 12 + [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]


def in_npz(rng: Random, data: bytes, inner: Callable[[Random, bytes], bytes] = in_npy) -> bytes:
    """Other members, names, compressions and claims; or a change inside one member, packed properly again."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    how = int(rng.integers(9))
    names = list(members)
    one = pick(rng, names)
    twice: list[tuple[str, bytes]] = []
    if how <= 3:
        members[one] = inner(rng, members[one])
    elif how == 4:
        members[pick(rng, [one.upper(), f"../{one}", "x", "/x.npy", f"{one}.npy", "\ud7ff.npy"])] = members.pop(one)
    elif how == 5:
        members.pop(one)
    elif how == 6:
        other = pick(rng, names)
        members[one], members[other] = members[other], members[one]
    elif how == 7:
        twice = [(one, pick(rng, [members[pick(rng, names)], b"", b"x"]))]
    packing = pick(rng, PACKINGS)
    out = io.BytesIO()
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of names that come twice
        with zipfile.ZipFile(out, "w", packing) as archive:
            for name, content in [*members.items(), *twice]:
                archive.writestr(name, content)
    packed = out.getvalue()
    return in_zip_headers(rng, packed) if how == 8 else packed


def in_zip_headers(rng: Random, data: bytes) -> bytes:
    """Write false entries into a zip file's directory: sizes, places, methods, flags, checksums, counts."""
    mark, width = pick(rng, [(b"PK\x01\x02", 46), (b"PK\x03\x04", 30), (b"PK\x05\x06", 22)])
    starts = [found.start() for found in re.finditer(re.escape(mark), data[: len(data) - width + 4])]
    starts = starts or [len(data) - 22]
    at = int(pick(rng, starts)) + 4 + 2 * int(rng.integers((width - 4) // 2))
    value = pick(rng, [0, 1, 8, 12, 99, 0xFFFF, 0x7FFF, int(rng.integers(65536))])
    return data[:at] + struct.pack("<H", value) + data[at + 2 :]


# --- safetensors ------------------------------------------------------------------------------------------------------


def in_safetensors(rng: Random, data: bytes) -> bytes:
    """Another header over the same tensors: names, types, shapes, places, length; or other tensors below it."""
    length = struct.unpack("<Q", data[:8])[0]
    header, body = data[8 : 8 + length], data[8 + length :]
    how = int(rng.integers(7))
    if how == 0:
        return struct.pack("<Q", pick(rng, [0, 1, length - 1, length + 8, 2**31, 2**63, 2**64 - 1])) + data[8:]
    if how == 1:
        body = pick(rng, [body[: len(body) // 2], body[:-4], body + bytes(8), b"", body * 2, body[::-1]])
    elif how == 2:
        described = json.loads(header)
        name = pick(rng, sorted(set(described) - {"__metadata__"}))
        kind = pick(rng, ["F64", "F16", "BF16", "I32", "BOOL", "U8", "C64", "F8_E4M3", "X"])
        described[name][pick(rng, ["dtype", "shape"])] = pick(rng, [kind, odd_shape(rng, (2, 3)), odd_values(rng)])
        header = json.dumps(described).encode()
    elif how == 3:
        kind = pick(rng, [float("nan"), float("inf"), -1e38, 0.0])  # weights that are not numbers, or too large
        at = 4 * int(rng.integers(max(1, len(body) // 4)))
        body = body[:at] + struct.pack("<f", kind) + body[at + 4 :]
    elif how == 4:  # another type and other dimensions, of as many bytes
        described = json.loads(header)
        name = pick(rng, sorted(set(described) - {"__metadata__"}))
        start, stop = described[name]["data_offsets"]
        kind, size = pick(
            rng, [("F8_E4M3", 1), ("BOOL", 1), ("BF16", 2), ("U16", 2), ("I32", 4), ("F64", 8), ("C64", 8)]
        )
        described[name] |= {"dtype": kind, "shape": [1] * pick(rng, [0, 60, 5000]) + [(stop - start) // size]}
        header = json.dumps(described).encode()
    else:
        header = in_json(rng, header)
    return struct.pack("<Q", len(header)) + header + body


# --- pickles ----------------------------------------------------------------------------------------------------------

OPCODES = b"(.0125BCFGHIJKLMNPQRSTUVX]abcdeghijlopqrstu}" + bytes(range(0x80, 0x96))
FRAGMENTS = [
    b"cos\nsystem\n(S'touch owned'\ntR",
    b"cbuiltins\neval\n",
    b"]" * 3000 + b"a" * 2999,
    b"}" * 3000,
    b"(" * 9000,
    b"I" + b"9" * 5000 + b"\n",
    b"\x8a\xff" + b"\x7f" * 255,
    b"\x8b\xff\xff\xff\x7f",
    b"X\xff\xff\xff\x7f",
    b"h\xff",
    b"r\xff\xff\xff\x7f",
    b"0" * 50,
    b"2" * 200,
    b"\x87" * 20,
    b"\x85" * 10**5,  # a tuple in a tuple, deeper than any text
    b"q\xffh\xff\x86" * 60,  # a tuple that has itself twice, 60 times: endless as text
    b".",
    b"N",
    b"G\x7f\xf8\0\0\0\0\0\0",
    b"Vcpu\n",
]
WORDS = [
    b"torch",
    b"FloatStorage",
    b"LongStorage",
    b"storage",
    b"cpu",
    b"collections",
    b"OrderedDict",
    b"_rebuild_tensor_v2",
]


def in_pickles(rng: Random, data: bytes) -> bytes:
    """Other opcodes, arguments, names and sizes in pickles that describe tensors, or bytes anywhere."""
    how = int(rng.integers(7))
    at = int(rng.integers(len(data)))
    if how == 0:
        return in_bytes(rng, data)
    if how == 1:
        return data[:at] + bytes([pick(rng, OPCODES)]) + data[at + 1 :]
    if how == 2:
        return data[:at] + pick(rng, FRAGMENTS) + data[at:]
    if how == 3:
        word = pick(rng, [word for word in WORDS if word in data])
        return data.replace(
            word, pick(rng, [b"os", b"system", word.upper(), b"\xff", b"", *WORDS]), int(rng.integers(1, 3))
        )
    if how == 4:  # the argument of an opcode for small numbers: sizes, offsets, strides, places in the memo
        found = [match.start() + 1 for match in re.finditer(rb"[KMqhJ]", data)]
        at = int(pick(rng, found))
        return data[:at] + bytes([pick(rng, [0, 1, 2, 3, 127, 128, 255])]) + data[at + 1 :]
    if how == 5:
        a, b = sorted(int(v) for v in rng.integers(0, len(data), 2))
        return data[:a] + data[b:] + data[a:b]
    number = struct.pack("<q", pick(rng, [0, 1, -1, 2**31, 2**62, 7]))
    return data[:at] + number + data[at + 8 :]


# --- bytes -----------------------------------------------------------------------------------------------------------


def in_bytes(rng: Random, data: bytes) -> bytes:
    """Flipped, lost, doubled, moved, appended or blank bytes; never the same as before."""
    changed = data
    while changed == data:
        how, n = int(rng.integers(9)), len(data)
        a, b = sorted(int(v) for v in rng.integers(0, n + 1, 2))
        if how <= 2 and n:
            at = int(rng.integers(n))
            changed = data[:at] + bytes([data[at] ^ (1 << int(rng.integers(8)))]) + data[at + 1 :]
        elif how == 3:
            changed = data[:a]
        elif how == 4:
            changed = data[:a] + data[b:]
        elif how == 5:
            changed = data[:b] + data[a:]
        elif how == 6:
            changed = data[:a] + rng.bytes(int(rng.integers(1, 20))) + data[a:]
        elif how == 7:
            changed = data[:a] + b"\0" * (b - a) + data[b:]
        else:
            changed = data + rng.bytes(int(rng.integers(1, 9)))
    return changed
