"""Programs with XNNPACK payloads as earlier exporters wrote them: the same graph, stored otherwise.

    inline(pte)      constants behind the tables of each payload, by offset
    headerless(pte)  no header, identifier XN00, constants inside the tables
"""

import json
import tempfile
from importlib import resources
from pathlib import Path

from executorch.backends.xnnpack import serialization
from executorch.backends.xnnpack.serialization.xnnpack_graph_serialize import XNNHeader
from executorch.exir._serialize._flatbuffer import _flatc_compile, _flatc_decompile
from executorch.exir._serialize._program import PTEFile, deserialize_pte_binary, serialize_pte_binary

ALIGNMENT = 16


def aligned(data):
    return data + bytes(-len(data) % ALIGNMENT)


def tables(payload, folder):
    """The tables of a payload as JSON."""
    header = XNNHeader.from_bytes(payload[: XNNHeader.EXPECTED_LENGTH])
    start = header.flatbuffer_offset
    schema, binary = folder / "schema.fbs", folder / "schema.bin"
    schema.write_bytes(resources.files(serialization).joinpath("schema.fbs").read_bytes())
    binary.write_bytes(payload[start : start + header.flatbuffer_size])
    _flatc_decompile(str(folder), str(schema), str(binary))
    return json.loads((folder / "schema.json").read_text())


def compiled(graph, name, folder):
    """JSON as tables of a schema."""
    schema, text = folder / name, folder / "graph.json"
    schema.write_bytes(resources.files(serialization).joinpath(name).read_bytes())
    text.write_text(json.dumps(graph))
    _flatc_compile(str(folder), str(schema), str(text))
    return (folder / "graph.bin").read_bytes()


def renewed(pte, turn):
    """The program with every payload as `turn` makes it of its tables and its constants."""
    file = deserialize_pte_binary(pte)
    data = file.named_data

    def constant(entry):
        return bytes(data.buffers[data.pte_data[entry["named_key"]].buffer_index]) if entry.get("named_key") else b""

    for place in file.program.backend_delegate_data:
        with tempfile.TemporaryDirectory() as folder:
            folder = Path(folder)
            graph = tables(bytes(place.data), folder)
            place.data = turn(graph, [constant(entry) for entry in graph["constant_data"]], folder)
    return bytes(serialize_pte_binary(PTEFile(program=file.program, mutable_data=file.mutable_data)))


def inline(pte):
    def turn(graph, constants, folder):
        behind, entries = b"", []
        for constant in constants:
            entries.append({"offset": len(behind), "size": len(constant)})
            behind += aligned(constant)
        body = compiled(graph | {"constant_data": entries}, "schema.fbs", folder)
        start = len(aligned(bytes(XNNHeader.EXPECTED_LENGTH)))
        header = XNNHeader(
            flatbuffer_offset=start, flatbuffer_size=len(body),
            constant_data_offset=start + len(aligned(body)), constant_data_size=len(behind))
        return aligned(header.to_bytes()) + aligned(body) + behind

    return renewed(pte, turn)


def headerless(pte):
    def turn(graph, constants, folder):
        del graph["constant_data"]
        graph["constant_buffer"] = [{"storage": list(constant)} for constant in constants]
        return compiled(graph, "runtime_schema.fbs", folder)

    return renewed(pte, turn)
