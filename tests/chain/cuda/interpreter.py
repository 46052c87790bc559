"""Mends three gaps of Triton's interpreter, which runs GPU kernels as Python on CPU tensors, and makes it faster."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any


@cache
def mend_interpreter() -> None:
    """To be called before a kernel is interpreted; once is enough."""
    _let_loops_end_at_arguments()
    _let_dots_read_bf16()
    _let_comparisons_be_masks()
    _patch_the_language_once_a_launch()
    _look_types_up_by_name()
    _let_whole_numbers_be()
    _describe_each_shape_once()


def _let_loops_end_at_arguments() -> None:
    """NumPy 2.4 refuses ``int()`` of the one-element arrays that hold triton 3.6's scalars, ``item()`` it allows."""
    from triton.runtime import interpreter

    patch_tensor = interpreter._patch_lang_tensor

    def patched(tensor: Any, *scopes: Any) -> None:  # a scope takes its changes back; triton 3.3 leaves them
        patch_tensor(tensor, *scopes)
        for set_attr in [scope.set_attr for scope in scopes] or [setattr]:
            set_attr(tensor, "__index__", lambda self: self.handle.data.item())

    interpreter._patch_lang_tensor = patched


def _let_dots_read_bf16() -> None:
    """Triton 3.6's interpreter multiplies the bit patterns of bf16 operands; float32 holds their values exactly."""
    import numpy as np
    import triton.language as tl
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    multiply = InterpreterBuilder.create_dot

    def widened(operand: Any) -> Any:
        if operand.dtype.scalar != tl.bfloat16:
            return operand
        return TensorHandle((operand.data.astype(np.uint32) << 16).view(np.float32), tl.float32)

    def patched(self: Any, a: Any, b: Any, *rest: Any) -> Any:
        return multiply(self, widened(a), widened(b), *rest)

    InterpreterBuilder.create_dot = patched


def _let_comparisons_be_masks() -> None:
    """A compared scalar keeps the type of what was compared, and spread over a tile it is no mask to triton 3.9."""
    import numpy as np
    import triton.language as tl
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    combine = InterpreterBuilder.binary_op

    def patched(self: Any, a: Any, b: Any, operation: Any) -> Any:
        result = combine(self, a, b, operation)
        return TensorHandle(result.data, tl.int1) if result.data.dtype == np.bool_ else result

    InterpreterBuilder.binary_op = patched


def _patch_the_language_once_a_launch() -> None:
    """Every call of a device function looks through all of triton.language to patch what the first has patched."""
    from triton.runtime import interpreter

    launch, patched = interpreter.GridExecutor.__call__, set()

    def launched(self: Any, *arguments: Any, **options: Any) -> Any:
        patched.clear()  # what a launch has patched it takes back when it ends
        return launch(self, *arguments, **options)

    def called(self: Any, *arguments: Any, **options: Any) -> Any:
        if self.fn not in patched:
            interpreter._patch_lang(self.fn)
            patched.add(self.fn)
        return self.rewrite()(*arguments, **options)

    interpreter.GridExecutor.__call__ = launched
    interpreter.InterpretedFunction.__call__ = called


def _look_types_up_by_name() -> None:
    """Triton makes a table of all types for each lookup of one."""
    from triton.runtime import interpreter

    look_up, known = interpreter._get_np_dtype, {}

    def found(given: Any) -> Any:
        name = given.scalar.name
        if name not in known:
            known[name] = look_up(given.scalar)
        return known[name]

    interpreter._get_np_dtype = found


def _let_whole_numbers_be() -> None:
    """Each is computed again in 64 bits to see it overflow: none of a chain that is interpreted is near 2³¹."""
    from triton.runtime import interpreter

    options = interpreter.interpreter_builder.options
    interpreter.interpreter_builder.options = replace(options, sanitize_overflow=False)


def _describe_each_shape_once() -> None:
    """Every value and every type describes its shape in objects and words of its own, most of the work there is."""
    from triton.language import core

    make_tensor, make_block = core.tensor.__init__, core.block_type.__init__
    tensors: dict[Any, dict[str, Any]] = {}
    blocks: dict[Any, dict[str, Any]] = {}

    def tensor(self: Any, handle: Any, type: Any) -> None:
        shape = tuple(type.shape) if type.is_block() else ()
        if shape not in tensors:
            make_tensor(self, handle, type)
            tensors[shape] = {name: value for name, value in vars(self).items() if name in ("shape", "numel")}
        vars(self).update(tensors[shape], handle=handle, type=type, dtype=type.scalar)

    def block(self: Any, element_ty: Any, shape: Any) -> None:
        key = element_ty.name, tuple([getattr(size, "value", size) for size in shape])
        if key not in blocks:
            make_block(self, element_ty, shape)
            blocks[key] = dict(vars(self))
        vars(self).update(blocks[key], element_ty=element_ty)

    core.tensor.__init__ = tensor
    core.block_type.__init__ = block
