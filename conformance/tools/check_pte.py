"""Does ExecuTorch's own Python read a .pte file, and do two files say the same?

    check_pte.py A.pte           prints "accepted", or "rejected" with the reason
    check_pte.py A.pte B.pte     then "equal", or the first differences
    check_pte.py --batch LIST    the same for many, loading ExecuTorch once

LIST is a file (- for standard input) with one check a line: a path, or two with a tab
between them. Each is answered at once by a JSON object on a line of its own: "verdict"
("accepted", "rejected", "equal" or "different") and "details", a list of lines.

Needs the packages executorch (with its MLX serialization files generated, see
setup.sh) and flatbuffers. It does not need torch: ExecuTorch's
package initialisers, which import torch, are stepped around.

A is read to the end: the program table by ExecuTorch's own reader, then every
segment, constant, named data entry and MLX delegate payload, with each index
checked against what it points into. The comparison is of contents: the order
and place of segments in the file do not count, nor does padding.

Exit status: 0 accepted (and equal), 1 rejected or different, 2 bad usage.
"""

import argparse
import contextlib
import dataclasses
import enum
import importlib
import importlib.util
import json
import math
import struct
import sys
import types
from pathlib import Path

import flatbuffers

MLX_BACKEND = "MLXBackend"
MLX_HEADER = struct.Struct("<4x4sQQ")  # magic, data offset, data size
PTE_HEADER = struct.Struct("<4sIQQ")  # magic, length, program size, segment base
PTE_HEADER_AT = 8
SEGMENT_ALIGNMENT = 16
# Bytes of an element by ScalarType code, of the types that tensors in files have.
ELEMENT_SIZE = {0: 1, 1: 1, 2: 2, 3: 4, 4: 8, 5: 2, 6: 4, 7: 8, 11: 1, 15: 2, 27: 2, 28: 4, 29: 8}
SHOWN_DIFFERENCES = 20


class Rejected(Exception):
    """The file is not one that ExecuTorch's readers accept."""


@contextlib.contextmanager
def reading(part: str):
    """Turn whatever a reader raises into a rejection that names the part."""
    try:
        yield
    except Rejected:
        raise
    except Exception as error:
        raise Rejected(f"{part}: {type(error).__name__}: {error}") from error


def require(condition, message: str) -> None:
    if not condition:
        raise Rejected(message)


def require_index(index: int, count: int, what: str) -> None:
    require(0 <= index < count, f"{what}: index {index} of {count}")


def load_bindings():
    """ExecuTorch's program reader, and the package of MLX FlatBuffers bindings."""
    spec = importlib.util.find_spec("executorch")
    if spec is None:
        sys.exit("check_pte: the package executorch is not installed")
    root = Path(spec.submodule_search_locations[0])
    # Packages with the right search path whose __init__ has not run.
    for name in (
        "exir",
        "exir._serialize",
        "backends",
        "backends.mlx",
        "backends.mlx.serialization",
    ):
        package = types.ModuleType(f"executorch.{name}")
        package.__path__ = [str(root.joinpath(*name.split(".")))]
        sys.modules.setdefault(package.__name__, package)
    reader = importlib.import_module("executorch.exir._serialize._flatbuffer_program")
    mlx = "executorch.backends.mlx.serialization._generated.mlx_delegate"
    try:
        importlib.import_module(mlx)
    except ImportError:
        sys.exit("check_pte: MLX bindings are missing; run setup.sh")
    return reader, mlx


def check_every_access() -> None:
    """Make the FlatBuffers library refuse what lies outside the buffer."""
    plain_string = flatbuffers.table.Table.String

    def get(packer, buffer, at):
        if not 0 <= at <= len(buffer) - packer.size:
            raise Rejected(f"offset {at} is outside the {len(buffer)} byte table data")
        return packer.unpack_from(buffer, at)[0]

    def string(table, at):
        value = plain_string(table, at)
        start = at + get(flatbuffers.packer.uoffset, table.Bytes, at)
        if len(value) != get(flatbuffers.packer.uoffset, table.Bytes, start):
            raise Rejected(f"the string at {start} runs past the table data")
        return value

    flatbuffers.encode.Get = get
    flatbuffers.table.Table.String = string


def empty_absent_lists(table) -> None:
    """An absent vector means an empty one; make every absent list a list."""
    for field in dataclasses.fields(table):
        value = getattr(table, field.name)
        if value is None and "List[" in str(field.type):
            setattr(table, field.name, [])
        for item in value if isinstance(value, list) else [value]:
            if dataclasses.is_dataclass(item):
                empty_absent_lists(item)


def split_file(data: bytes):
    """The program's bytes and the bytes of the segments that follow it."""
    require(len(data) >= 8, "shorter than a FlatBuffer")
    require(data[4:8] == b"ET12", f"file identifier is {data[4:8]!r}, not b'ET12'")
    if data[8:12] != b"eh00":
        return data, b""
    require(len(data) >= PTE_HEADER_AT + PTE_HEADER.size, "extended header is cut off")
    _, length, size, base = PTE_HEADER.unpack_from(data, PTE_HEADER_AT)
    require(length >= PTE_HEADER.size, f"extended header length is {length}")
    require(size <= len(data), f"program size {size} exceeds the file's {len(data)}")
    require(base <= len(data), f"segment base {base} exceeds the file's {len(data)}")
    require(base == 0 or base >= size, f"segment base {base} is inside the program")
    return data[:size], data[base:] if base else b""


def split_segments(program, data: bytes) -> list[bytes]:
    segments = []
    for i, segment in enumerate(program.segments):
        end = segment.offset + segment.size
        require(end <= len(data), f"segment {i} ends at {end} of {len(data)}")
        aligned = segment.offset % SEGMENT_ALIGNMENT == 0 or segment.size == 0
        require(aligned, f"segment {i} starts at {segment.offset}, not aligned")
        segments.append(data[segment.offset : end])
    return segments


def subsegments(table, segments: list[bytes], what: str) -> list[bytes]:
    """The buffers that a SubsegmentOffsets table cuts its segment into."""
    if table is None or not table.offsets:
        return []
    require_index(table.segment_index, len(segments), f"{what} segment")
    data = segments[table.segment_index]
    ends = list(table.offsets[1:]) + [len(data)]
    buffers = []
    for i, (start, end) in enumerate(zip(table.offsets, ends)):
        ordered = start <= end <= len(data)
        require(ordered, f"{what} {i} spans {start}..{end} of {len(data)}")
        buffers.append(data[start:end])
    return buffers


def used_bytes(buffers, plans, is_user, what: str) -> list[bytes]:
    """The buffers cut to what the tensors in them use; the rest is padding."""
    used = [0] * len(buffers)
    for plan in plans:
        for value in (v.val for v in plan.values):
            if type(value).__name__ != "Tensor" or not is_user(value):
                continue
            index, size = value.data_buffer_idx, ELEMENT_SIZE[value.scalar_type.value]
            size *= math.prod(value.sizes)
            stored = len(buffers[index])
            require(size <= stored, f"{what} {index} has {stored} of {size} bytes")
            used[index] = max(used[index], size)
    return [buffer[:size] for buffer, size in zip(buffers, used)]


def check_plan(plan, constants: int, mutable: int) -> None:
    """Every index inside one method must point at something."""
    count, where = len(plan.values), f"method {plan.name!r}"
    for index in [*plan.inputs, *plan.outputs]:
        require_index(index, count, f"{where} input or output")
    for i, value in enumerate(plan.values):
        check_value(value.val, count, constants, mutable, f"{where} value {i}")
    for c, chain in enumerate(plan.chains):
        for i, instruction in enumerate(chain.instructions):
            check_call(plan, chain, instruction.instr_args, f"{where} {c}.{i}")


def check_value(value, count, constants, mutable, where) -> None:
    kind = type(value).__name__
    if kind == "Tensor":
        require(len(value.sizes) == len(value.dim_order), f"{where}: sizes, dim_order")
        if value.data_buffer_idx > 0:
            stored = constants if value.allocation_info is None else mutable
            require_index(value.data_buffer_idx, stored, f"{where} data")
    elif kind in ("TensorList", "OptionalTensorList", "IntList"):
        for item in value.items:
            if not (kind == "OptionalTensorList" and item == -1):
                require_index(item, count, f"{where} item")


def check_call(plan, chain, call, where) -> None:
    kind, values = type(call).__name__, len(plan.values)
    if kind == "KernelCall":
        require_index(call.op_index, len(plan.operators), f"{where} operator")
        indices = call.args
    elif kind == "DelegateCall":
        require_index(call.delegate_index, len(plan.delegates), f"{where} delegate")
        indices = call.args
    elif kind == "MoveCall":
        indices = [call.move_from, call.move_to]
    elif kind == "JumpFalseCall":
        target = call.destination_instruction
        require_index(target, len(chain.instructions), f"{where} jump")
        indices = [call.cond_value_index]
    elif kind == "FreeCall":
        indices = [call.value_index]
    else:
        raise Rejected(f"{where}: instruction {kind}")
    for index in indices:
        require_index(index, values, f"{where} {kind}")


def delegate_payload(program, segments, delegate, where) -> bytes:
    index = delegate.processed.index
    if delegate.processed.location.name == "INLINE":
        require_index(index, len(program.backend_delegate_data), f"{where} inline data")
        return bytes(program.backend_delegate_data[index].data)
    require_index(index, len(segments), f"{where} segment")
    return segments[index]


def named_data(program, segments) -> dict[str, bytes]:
    named = {}
    for entry in program.named_data:
        require_index(entry.segment_index, len(segments), f"named data {entry.key!r}")
        require(entry.key not in named, f"named data {entry.key!r} occurs twice")
        named[entry.key] = segments[entry.segment_index]
    return named


class MlxReader:
    """Reads MLX payloads into plain trees by way of the generated bindings."""

    def __init__(self, package: str):
        self.package = package
        self.node_kinds = {
            number: kind
            for kind, number in vars(self.binding("OpNode")).items()
            if isinstance(number, int)
        }

    def binding(self, name: str):
        return getattr(importlib.import_module(f"{self.package}.{name}"), name)

    def read(self, payload: bytes, where: str) -> dict:
        require(len(payload) >= MLX_HEADER.size, f"{where}: header is cut off")
        magic, data_at, data_size = MLX_HEADER.unpack_from(payload)
        require(magic == b"MLX0", f"{where}: magic is {magic!r}")
        inside = MLX_HEADER.size <= data_at and data_at + data_size <= len(payload)
        require(inside, f"{where}: data at {data_at}+{data_size} of {len(payload)}")
        with reading(where):
            tables = payload[MLX_HEADER.size : data_at]
            graph = self.tree(self.binding("MLXGraph").GetRootAs(tables, 0))
        self.check(graph, where)
        return {"graph": graph, "data": payload[data_at : data_at + data_size]}

    def tree(self, table):
        """A table or struct as a dict, everything below it included."""
        if isinstance(table, bytes):
            return table.decode()
        if not hasattr(table, "Init"):
            return table
        fields = vars(type(table))
        result = {"_": type(table).__name__}
        for name, accessor in fields.items():
            derived = name.endswith(("Length", "AsNumpy", "IsNone"))
            if derived or name == "Init" or not isinstance(accessor, types.FunctionType):
                continue
            if f"{name}Length" in fields:
                length = getattr(table, f"{name}Length")()
                items = (getattr(table, name)(i) for i in range(length))
                result[name] = [self.tree(item) for item in items]
            elif result["_"] == "Instruction" and name == "Op":
                result[name] = self.tree(self.node(table))
            else:
                result[name] = self.tree(getattr(table, name)())
        return result

    def node(self, instruction):
        number, place = instruction.OpType(), instruction.Op()
        kind = self.node_kinds.get(number)
        require(number != 0 and kind is not None, f"unknown node kind {number}")
        require(place is not None, f"a {kind} has no table")
        node = self.binding(kind)()
        node.Init(place.Bytes, place.Pos)
        return node

    def check(self, graph: dict, where: str) -> None:
        """Every slot and chain that the graph names must exist."""
        kinds = ("Constant", "Input", "Output", "MutableBuffer", "Temp")
        tensors = sum(graph[f"Num{kind}Tensors"] for kind in kinds)
        values, chains = graph["NumValues"], len(graph["InstructionChains"])
        for path, table in tables_of(graph, where):
            kind = table["_"]
            if kind == "Tid":
                require_index(table["Idx"], tensors, f"{path} tensor")
            elif kind == "Vid":
                require_index(table["Idx"], values, f"{path} value")
            elif kind == "SlotVariant":
                slots = tensors if table["SlotType"] == 0 else values
                require_index(table["Idx"], slots, f"{path} slot")
            for name, value in table.items():
                if name.endswith("ChainIdx") and not (
                    name == "InitChainIdx" and value == -1
                ):
                    require_index(value, chains, f"{path} {name}")
        named = {
            slot["Slot"]["Idx"]
            for slot in graph["NamedSlots"]
            if slot["Slot"]["SlotType"] == 0
        }
        for tid in range(graph["NumConstantTensors"]):
            require(tid in named, f"{where}: constant tensor {tid} has no name")
            require_index(tid, len(graph["TensorMeta"]), f"{where} constant metadata")

    def check_constants(self, graph: dict, named: dict, where: str) -> None:
        """Every constant that the file holds must have the size that it claims."""
        for slot in graph["NamedSlots"]:
            tid, key = slot["Slot"]["Idx"], slot["Name"]
            is_constant = slot["Slot"]["SlotType"] == 0 and tid < graph["NumConstantTensors"]
            if not is_constant or key not in named:  # absent: it comes from a .ptd file
                continue
            meta = graph["TensorMeta"][tid]
            size = math.prod(dim["Value"] for dim in meta["Shape"] or [])
            size *= ELEMENT_SIZE[meta["ScalarType"]]
            stored = len(named[key])
            require(stored == size, f"{where}: {key!r} has {stored} of {size} bytes")


def tables_of(tree, path):
    """(path, table) for a tree of dicts and lists, outermost first."""
    if isinstance(tree, dict):
        yield path, tree
        for name, value in tree.items():
            yield from tables_of(value, f"{path}.{name}")
    elif isinstance(tree, list):
        for i, value in enumerate(tree):
            yield from tables_of(value, f"{path}[{i}]")


def plain(value):
    """ExecuTorch's dataclasses as dicts, enums as their names."""
    if dataclasses.is_dataclass(value):
        fields = {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return {"_": type(value).__name__, **fields}
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


def is_constant(tensor) -> bool:
    return tensor.data_buffer_idx > 0 and tensor.allocation_info is None and not is_external(tensor)


def is_external(tensor) -> bool:
    extra = tensor.extra_tensor_info
    return extra is not None and extra.location.name == "EXTERNAL"


def is_initialised(tensor) -> bool:
    return tensor.data_buffer_idx > 0 and tensor.allocation_info is not None


def read_file(path: Path, reader, mlx: MlxReader) -> dict:
    """All that a .pte file says, as one tree; raises Rejected."""
    program_data, segment_data = split_file(path.read_bytes())
    with reading("program"):
        program = reader._flatbuffer_to_program(program_data)
        empty_absent_lists(program)
    segments = split_segments(program, segment_data)
    constants = subsegments(program.constant_segment, segments, "constant")
    if not constants:
        constants = [bytes(b.storage) for b in program.constant_buffer]
    mutable = [
        buffer
        for table in program.mutable_data_segments
        for buffer in subsegments(table, segments, "mutable data")
    ]
    payloads = {}
    for plan in program.execution_plan:
        check_plan(plan, len(constants), len(mutable))
        for i, delegate in enumerate(plan.delegates):
            where = f"{plan.name} delegate {i}"
            payload = delegate_payload(program, segments, delegate, where)
            if delegate.id == MLX_BACKEND:
                payload = mlx.read(payload, where)
            payloads[where] = payload
            delegate.processed = None  # where it lies is not part of what it says
    plans, named = program.execution_plan, named_data(program, segments)
    for where, payload in payloads.items():
        if isinstance(payload, dict):
            mlx.check_constants(payload["graph"], named, where)
    result = {
        "version": program.version,
        "methods": {plan.name: plain(plan) for plan in plans},
        "payloads": payloads,
        "constants": used_bytes(constants, plans, is_constant, "constant"),
        "mutable_data": used_bytes(mutable, plans, is_initialised, "mutable data"),
        "named_data": named,
    }
    require(len(result["methods"]) == len(program.execution_plan), "two equal methods")
    return result


def differences(a, b, path=""):
    """Lines that say where two trees differ, in the order of the first."""
    if type(a) is not type(b):
        yield f"{path}: {shown(a)} against {shown(b)}"
    elif isinstance(a, dict):
        for key in [*a, *(key for key in b if key not in a)]:
            if key not in a or key not in b:
                yield f"{path}.{key}: only in the {'second' if key in b else 'first'}"
            else:
                yield from differences(a[key], b[key], f"{path}.{key}")
    elif isinstance(a, list):
        if len(a) != len(b):
            yield f"{path}: {len(a)} items against {len(b)}"
        for i, (x, y) in enumerate(zip(a, b)):
            yield from differences(x, y, f"{path}[{i}]")
    elif a != b and not (a != a and b != b):  # NaN equals NaN
        yield f"{path}: {shown(a)} against {shown(b)}"


def shown(value) -> str:
    if isinstance(value, bytes):
        return f"{len(value)} bytes starting {value[:8].hex()}"
    text = repr(value)
    return text if len(text) <= 100 else text[:97] + "..."


def judge(paths: list[Path], reader, mlx: MlxReader) -> tuple[str, list[str]]:
    """The verdict on one file, or on two held against each other, and its reasons."""
    trees = []
    for path in paths:
        try:
            trees.append(read_file(path, reader, mlx))
        except (Rejected, OSError) as error:
            return "rejected", [f"{path.name}: {error}"]
    if len(trees) == 1:
        return "accepted", []
    lines = [line.lstrip(".") for line in differences(*trees)]
    return "different" if lines else "equal", lines


def shortened(lines: list[str]) -> list[str]:
    more = len(lines) - SHOWN_DIFFERENCES
    return lines if more <= 0 else [*lines[:SHOWN_DIFFERENCES], f"... {more} more"]


def run_batch(source, reader, mlx: MlxReader) -> int:
    """Answer every line of a list; 1 when one was rejected or different."""
    status = 0
    for line in source:
        paths = [Path(name) for name in line.rstrip("\n").split("\t")]
        if len(paths) > 2:
            sys.exit(f"check_pte: more than two paths in {line!r}")
        verdict, details = judge(paths, reader, mlx)
        print(json.dumps({"verdict": verdict, "details": shortened(details)}), flush=True)
        if verdict in ("rejected", "different"):
            status = 1
    return status


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", type=Path, metavar="PTE")
    parser.add_argument("--batch", metavar="LIST", help="a file with one check a line")
    args = parser.parse_args()
    if (args.batch is None) == (not args.files):
        parser.error("one file, two files, or --batch LIST")
    if len(args.files) > 2:
        parser.error("one file, or two")
    reader, package = load_bindings()
    check_every_access()
    mlx = MlxReader(package)
    if args.batch == "-":
        return run_batch(sys.stdin, reader, mlx)
    if args.batch is not None:
        with open(args.batch) as source:
            return run_batch(source, reader, mlx)
    verdict, details = judge(args.files, reader, mlx)
    if verdict == "rejected":
        print(f"rejected {details[0]}")
        return 1
    print("accepted")
    if len(args.files) == 2:
        print(*shortened(details), verdict, sep="\n")
    return 1 if verdict == "different" else 0


if __name__ == "__main__":
    sys.exit(main())
