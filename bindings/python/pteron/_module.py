"""Any program, on NumPy arrays that are not copied."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from . import pteron as native
from ._chat import Disposed
from ._errors import PteronError
from ._open import Opening, record

if TYPE_CHECKING:
    import numpy

Argument = Any
"""An array, a number, a text, a list of numbers, or ``None``."""

_NAMES = {
    native.DType.BOOL: "bool",
    native.DType.U8: "uint8",
    native.DType.U16: "uint16",
    native.DType.U32: "uint32",
    native.DType.U64: "uint64",
    native.DType.I8: "int8",
    native.DType.I16: "int16",
    native.DType.I32: "int32",
    native.DType.I64: "int64",
    native.DType.F16: "float16",
    native.DType.F32: "float32",
    native.DType.F64: "float64",
}
_DTYPES = {name: dtype for dtype, name in _NAMES.items()} | {"bfloat16": native.DType.BF16}


def _numpy() -> Any:
    try:
        import numpy
    except ImportError as error:
        raise ImportError("tensors are NumPy arrays here: pip install pteron[numpy]") from error
    return numpy


class _Kept(native.Keeper):
    """Holds an array for as long as a tensor looks at its memory."""

    def __init__(self, array: numpy.ndarray) -> None:
        self._array = array

    def what(self) -> str:
        return f"an array of {self._array.dtype}"


def tensor(array: Any) -> native.Tensor:
    """An array as a tensor: without a copy where its elements lie row by row. It must not change while it is used."""
    rows = _numpy().ascontiguousarray(array).reshape(_numpy().shape(array))
    dtype = _DTYPES.get(rows.dtype.name) if rows.dtype.isnative else None
    if dtype is None:
        raise PteronError.Invalid(f"arrays of {rows.dtype} are not taken")
    return native.Tensor.over(dtype, list(rows.shape), rows.ctypes.data, rows.nbytes, _Kept(rows))


def array(tensor: native.Tensor) -> numpy.ndarray:
    """A tensor as an array over the same memory, for reading. bf16 is ``ml_dtypes.bfloat16``, or ``uint16`` without it."""
    numpy = _numpy()
    name = _NAMES.get(tensor.dtype())
    if name is None:
        try:
            from ml_dtypes import bfloat16 as dtype
        except ImportError:
            dtype = "uint16"
    else:
        dtype = name
    shape = tensor.shape()
    if 0 in shape:
        return numpy.zeros(shape, dtype)
    memory = (ctypes.c_uint8 * tensor.byte_length()).from_address(tensor.address())
    # The memory stays as long as the tensor is held, and the array holds this.
    memory.tensor = tensor
    made = numpy.frombuffer(memory, dtype).reshape(shape)
    made.flags.writeable = False
    return made


def _value(argument: Argument) -> native.Value:
    if argument is None:
        return native.Value.NOTHING()
    if isinstance(argument, native.Tensor):
        return native.Value.TENSOR(argument)
    if isinstance(argument, bool):
        return native.Value.BOOL(argument)
    if isinstance(argument, int):
        return native.Value.INT(argument)
    if isinstance(argument, float):
        return native.Value.DOUBLE(argument)
    if isinstance(argument, str):
        return native.Value.TEXT(argument)
    if isinstance(argument, (list, tuple)):
        return _list(argument)
    return native.Value.TENSOR(tensor(argument))


def _list(values: Sequence[Any]) -> native.Value:
    if all(isinstance(value, bool) for value in values) and values:
        return native.Value.BOOLS(list(values))
    if all(isinstance(value, int) for value in values):
        return native.Value.INTS(list(values))
    if all(isinstance(value, (int, float)) for value in values):
        return native.Value.DOUBLES([float(value) for value in values])
    return native.Value.TENSORS([None if value is None else tensor(value) for value in values])


def _result(value: native.Value) -> Any:
    if value.is_TENSOR():
        return array(value.tensor)
    if value.is_TENSORS():
        return [None if each is None else array(each) for each in value.tensors]
    if value.is_NOTHING():
        return None
    return value.values if hasattr(value, "values") else value.value


class Module(Disposed):
    """A program with the state that its methods keep from run to run, as ExecuTorch's ``Module``."""

    def __init__(self, module: native.Module) -> None:
        self._native = module

    def __enter__(self) -> Module:
        return self

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], data: Iterable[str | os.PathLike[str]] = (), **options: Any
    ) -> Module:
        """Loads a program (``.pte``), with external data (``.ptd``) where it has some."""
        chosen = record(Opening(**options))  # type: ignore[typeddict-item]
        return cls(native.Module.load(os.fspath(path), [os.fspath(each) for each in data], chosen))

    @property
    def method_names(self) -> list[str]:
        """The names of its methods."""
        return self._native.method_names()

    def method_metadata(self, name: str) -> native.MethodMetadata:
        """What a method takes and gives."""
        return self._native.method_metadata(name)

    @property
    def metadata(self) -> dict[str, list[Any]]:
        """Numbers and texts that the file carries as methods without inputs."""
        return {name: [_result(value) for value in values] for name, values in self._native.metadata().items()}

    def execute(self, method: str, inputs: Iterable[Argument] = ()) -> list[Any]:
        """Runs a method. Arrays are not copied, neither in nor out; results are for reading.

        Arrays that are given must not change during the run. A result may look at the memory of an input.
        """
        return [_result(value) for value in self._native.execute(method, [_value(each) for each in inputs])]

    def forward(self, *inputs: Argument) -> list[Any]:
        """Runs the method ``forward``."""
        return self.execute("forward", inputs)

    def reset(self) -> None:
        """Forgets what earlier runs have left."""
        self._native.reset()

    def stop(self) -> None:
        """Ends the run that is under way, from any thread; the state is then as before it."""
        self._native.stop()
