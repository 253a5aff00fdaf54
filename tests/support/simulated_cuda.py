"""A simulated CUDA device: real numbers in CPU memory under tensors that say `cuda:0`.

    with simulated_cuda() as waits:
        policy.to("cuda")
        policy(batch)
    assert len(waits) <= 6

What CUDA refuses is refused: tensors of both devices in one operation (numbers excepted), CPU generators for CUDA
tensors, numpy without a copy. Wherever the host would wait for the device, a `Wait` is written down: reading a number,
copies to the host, blocking copies to the device, operations whose result has a size only the device knows. A copy to
the device with `non_blocking=True` is not one: it is staged and returns. Autocast follows CUDA's lists.

How it works: a `CudaTensor` is a tensor over ordinary memory. C++ takes it for a CPU tensor; Python and every operation
that reaches the dispatcher see the simulated device. Moves between devices are caught above autograd, where `.to` is.
"""

import contextlib
import re
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple
from unittest import mock

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_flatten, tree_map

CUDA, CPU = torch.device("cuda:0"), torch.device("cpu")
_PLAIN = torch._C.DisableTorchFunctionSubclass


class DeviceMismatchError(RuntimeError):
    """What CUDA would have raised."""


class Wait(NamedTuple):
    """The host waits for the device."""

    why: str
    where: str
    """Innermost line outside of torch."""


_waits: list[Wait] = []
doubles: list[str] = []
"""Where tensors in double precision came to be on the device. CUDA has it, Apple's GPUs have not."""
_backward_of_cuda: list[bool] = []
_engine = torch.autograd.graph._engine_run_backward
_BETWEEN = (__file__, "torch/utils/_python_dispatch.py", "torch/_compile.py", "torch/_dynamo/eval_frame.py")
"""Frames between whoever asks for an operation and its simulation."""


def _wait(why: str) -> None:
    _waits.append(Wait(why, _where()))


def _where() -> str:
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if name != __file__ and "/torch/" not in name:
            return f"{'/'.join(name.split('/')[-2:])}:{frame.f_lineno}"
        frame = frame.f_back
    return "?"


def _made_by_the_engine() -> bool:
    """Whether C++ itself asks during a backward pass: zeros for gradients that nobody gave."""
    if not any(_backward_of_cuda):
        return False
    frame = sys._getframe(1)
    while frame.f_code.co_filename.endswith(_BETWEEN):
        frame = frame.f_back
    return frame.f_code.co_filename.endswith("torch/autograd/graph.py")


class CudaTensor(torch.Tensor):
    """A tensor on the simulated device."""

    @staticmethod
    def __new__(cls, memory: torch.Tensor) -> "CudaTensor":
        if memory.dtype == torch.float64:
            doubles.append(_where())
        with _PLAIN(), _disable_current_modes():
            return torch.Tensor._make_subclass(
                cls, memory.detach(), False, dispatch_device=False, device_for_backend_keys=CUDA
            )

    device = property(lambda self: CUDA)
    is_cuda = property(lambda self: True)
    is_cpu = property(lambda self: False)
    __hash__ = torch.Tensor.__hash__

    @property
    def memory(self) -> torch.Tensor:
        """The same numbers as a CPU tensor."""
        with _PLAIN(), _disable_current_modes(), torch.no_grad():
            empty = torch.empty(0, dtype=self.dtype)
            return empty.set_(self.untyped_storage(), self.storage_offset(), self.size(), self.stride())

    @property
    def data(self) -> "CudaTensor":
        return self.detach()

    @data.setter
    def data(self, value: torch.Tensor) -> None:
        with _PLAIN():
            torch.Tensor.data.__set__(self, value)

    def numpy(self, *_: Any, **__: Any) -> None:
        raise TypeError("can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() first")

    __array__ = numpy

    def set_(self, *args: Any) -> "CudaTensor":
        """Other memory: another tensor."""
        with _PLAIN(), _disable_current_modes():
            return CudaTensor(torch.empty(0, dtype=self.dtype).set_(*args))

    def tolist(self) -> Any:
        _wait("tolist")
        return self.memory.tolist()

    def __repr__(self, **_: Any) -> str:
        return f"CudaTensor({self.memory})"

    def __deepcopy__(self, memo: dict[int, Any]) -> "CudaTensor":
        twin = CudaTensor(self.memory.clone()).requires_grad_(self.requires_grad)
        if isinstance(self, torch.nn.Parameter):
            twin._is_param = True
        return memo.setdefault(id(self), twin)

    # Marks a subclass that modules swap instead of filling.
    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["memory"], None

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, torch.Tensor], *_: Any) -> "CudaTensor":
        return CudaTensor(inner["memory"])

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with _PLAIN():
            return func(*args, **(kwargs or {}))

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})


class _Move(torch.autograd.Function):
    """Numbers to the other device; gradients come back."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, non_blocking: bool) -> torch.Tensor:
        ctx.non_blocking = non_blocking
        if isinstance(x, CudaTensor):
            _wait("copy to the host")
            return x.memory.clone()
        if not non_blocking:
            _wait("blocking copy to the device")
        return CudaTensor(x.detach().clone())

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        return _Move.apply(grad, ctx.non_blocking), None


def _to(x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    """`Tensor.to` in all its spellings."""
    device, dtype = kwargs.get("device"), kwargs.get("dtype")
    non_blocking, copy = kwargs.get("non_blocking", False), kwargs.get("copy", False)
    for given in (*args, kwargs.get("other")):
        if isinstance(given, torch.Tensor):
            device, dtype = given.device, given.dtype
        elif isinstance(given, torch.dtype):
            dtype = given
        elif isinstance(given, str | torch.device | int) and not isinstance(given, bool):
            device = given
    flags = [given for given in args if isinstance(given, bool)]
    non_blocking = flags[0] if flags else non_blocking
    there = x.device.type if device is None else torch.device(device).type
    with _PLAIN():
        if "meta" in (there, x.device.type):
            return torch.Tensor.to(x, *args, **kwargs)
        if there != x.device.type:
            if there == "cuda" and dtype is not None:  # converted on the host, then moved: what torch does
                x = torch.Tensor.to(x, dtype)
            x = _Move.apply(x, non_blocking)
        elif copy:
            x = x.clone()
        return x if dtype in (None, x.dtype) else torch.Tensor.to(x, dtype)


class _Functions(TorchFunctionMode):
    """What has to be seen above autograd: moves, numbers that become tensors, autocast."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.Tensor.to:
            return _to(*args, **kwargs)
        if func is torch.Tensor.cpu:
            return _to(args[0], "cpu")
        if func is torch.Tensor.cuda:
            return _to(args[0], "cuda")
        if func is torch.Tensor.type_as:
            return _to(args[0], args[1])
        if func in (torch.tensor, torch.as_tensor, torch.asarray):
            return _from_numbers(func, *args, **kwargs)
        if func is torch.Tensor.new_tensor and (kwargs.get("device") or args[0].device).type == "cuda":
            _wait("new_tensor")
            return CudaTensor(torch.tensor(args[1], dtype=kwargs.get("dtype", args[0].dtype)))
        if func is torch.Tensor.pin_memory:
            return args[0]
        args, kwargs = _autocast(func, args, kwargs)
        if func is torch.nn.functional.rms_norm and isinstance(args[0], CudaTensor):
            return _rms_norm(*args, **kwargs)
        return func(*args, **kwargs)


def _run_backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
    """Autograd's engine; gradients of Python functions and recomputed layers are simulated like the forward."""
    _backward_of_cuda.append(any(isinstance(t, CudaTensor) for t in tensors))
    try:
        with _Functions():
            return _engine(tensors, *args, **kwargs)
    finally:
        _backward_of_cuda.pop()


def _from_numbers(func: Any, data: Any, **kwargs: Any) -> torch.Tensor:
    device = torch.device(kwargs.pop("device", None) or (data.device if isinstance(data, torch.Tensor) else "cpu"))
    if isinstance(data, torch.Tensor):
        return _to(data, device, **{name: value for name, value in kwargs.items() if name == "dtype"})
    made = func(data, **kwargs)
    return _to(made, device) if device.type == "cuda" else made


def _rms_norm(x: torch.Tensor, shape: Any, weight: Any = None, eps: float | None = None) -> torch.Tensor:
    """The CPU has no kernel for the gradient of the fused one that CUDA takes."""
    normed = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + (torch.finfo(x.dtype).eps if eps is None else eps))
    return normed if weight is None else normed * weight


# CUDA's autocast lists, as torch documents them, by name.
_LOWER = re.compile(
    "linear|(__)?r?matmul(__)?|(add)?(b?mm|mv)|baddbmm|einsum|conv[123]d|prelu|scaled_dot_product_attention"
)
_FLOAT32 = re.compile(
    "(layer|group)_norm|(log_)?softmax|cumsum|cumprod|(__)?pow(__)?|exp|expm1|log(1p|2|10)?|rsqrt|reciprocal|sum|prod"
    "|norm|softplus|erfinv|cdist|renorm|cosine_similarity|(mse|l1|smooth_l1|nll)_loss|acos|asin|cosh|sinh|tan"
)
_WIDEST = re.compile("cat|stack|addcmul|addcdiv|atan2|cross|dot|tensordot|scatter_add|index_put|bilinear|grid_sample")


def _autocast(func: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
    name = getattr(func, "__name__", "")
    lower, widest = _LOWER.fullmatch(name), _WIDEST.fullmatch(name)
    if not torch.is_autocast_enabled("cuda") or not (lower or widest or _FLOAT32.fullmatch(name)):
        return args, kwargs
    floats = [t for t in tree_flatten((args, kwargs))[0] if isinstance(t, CudaTensor) and t.is_floating_point()]
    if widest and len({t.dtype for t in floats}) < 2:
        return args, kwargs
    dtype = torch.get_autocast_dtype("cuda") if lower else torch.float32
    chosen = {id(t) for t in floats if t.dtype not in (torch.float64, dtype)}
    with _PLAIN():
        return tree_map(lambda t: torch.Tensor.to(t, dtype) if id(t) in chosen else t, (args, kwargs))


class _Operations(TorchDispatchMode):
    """Operations without a simulated tensor among their arguments: factories, and what stays on the CPU."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})


_SIZE_FROM_THE_DEVICE = {"nonzero", "masked_select", "_unique2", "unique_consecutive", "unique_dim"}
_NUMBER = {"_local_scalar_dense", "equal", "is_nonzero"}
_INDEX = {"index", "_unsafe_index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index_put"}
_COPY = {"copy_", "copy", "_foreach_copy_"}


def _run(func: Any, args: Any, kwargs: Any) -> Any:
    """One operation: refuse what CUDA refuses, write down waits, compute on the memory, wrap what comes out."""
    name = func._schema.name.removeprefix("aten::")
    tensors = [t for t in tree_flatten((args, kwargs))[0] if isinstance(t, torch.Tensor)]
    simulated = [t for t in tensors if isinstance(t, CudaTensor)]
    asked = None if kwargs.get("device") is None else torch.device(kwargs["device"]).type
    on_cuda = bool(simulated) or asked == "cuda" or (not tensors and _made_by_the_engine())
    if on_cuda:
        _refuse_generator(func, args, kwargs)
        if name in _INDEX:
            on_cuda = _check_index(name, *args)
        elif name in _COPY:
            on_cuda = _check_copy(*args, **kwargs)
        else:
            _refuse_mixture(func, tensors, simulated)
        if simulated and name in _NUMBER | _SIZE_FROM_THE_DEVICE:
            _wait(name)
    bare_args, bare = tree_map(lambda t: t.memory if isinstance(t, CudaTensor) else t, (args, kwargs))
    if asked == "cuda":
        bare = {**bare, "device": CPU}
    if bare.get("pin_memory"):
        bare = {**bare, "pin_memory": False}
    out = func(*bare_args, **bare)
    if not on_cuda:
        return out
    if func._schema.is_mutable and isinstance(out, torch.Tensor):  # what was written to is what comes back
        return kwargs["out"] if "out" in kwargs else args[0]
    return tree_map(lambda t: CudaTensor(t) if isinstance(t, torch.Tensor) else t, out)


def _refuse_generator(func: Any, args: Any, kwargs: Any) -> None:
    for given in (*args, *kwargs.values()):
        if isinstance(given, torch.Generator) and given.device.type != "cuda":
            raise DeviceMismatchError(f"Expected a 'cuda' device type for generator but found 'cpu' in {func}")


def _refuse_mixture(func: Any, tensors: list[torch.Tensor], simulated: list[torch.Tensor]) -> None:
    """Numbers (tensors without axes) may come from the CPU, unless they are written to."""
    strangers = [t for t in tensors if not isinstance(t, CudaTensor)]
    written = func._schema.is_mutable and strangers and strangers[0] is tensors[0]
    if simulated and (written or any(t.ndim for t in strangers)):
        shapes = [tuple(t.shape) for t in strangers]
        raise DeviceMismatchError(
            f"Expected all tensors to be on the same device, but found cuda:0 and cpu {shapes} in {func} at {_where()}"
        )


def _check_index(name: str, x: torch.Tensor, indices: Any, values: torch.Tensor | None = None, *_: Any) -> bool:
    """Whether an indexed tensor is simulated; indices that must be counted or copied first make the host wait."""
    given = [index for index in indices if index is not None]
    if not isinstance(x, CudaTensor):
        if any(isinstance(index, CudaTensor) for index in given):
            raise DeviceMismatchError(f"indices should be on the cpu, as the indexed tensor is, at {_where()}")
        if isinstance(values, CudaTensor):
            raise DeviceMismatchError(f"{name} of cuda values into a cpu tensor at {_where()}")
        return False
    if values is not None and values.ndim and not isinstance(values, CudaTensor):
        raise DeviceMismatchError(f"{name} of cpu values into a cuda tensor at {_where()}")
    for index in given:
        if not isinstance(index, CudaTensor):
            _wait("index copied to the device")
        if index.dtype in (torch.bool, torch.uint8):
            _wait("index by a mask")
    return True


def _check_copy(into: Any, source: Any, non_blocking: bool = False, **_: Any) -> bool:
    pairs = zip(into, source, strict=True) if isinstance(into, list) else [(into, source)]
    for target, given in pairs:
        if isinstance(given, CudaTensor) and not isinstance(target, CudaTensor):
            _wait("copy to the host")
        elif isinstance(target, CudaTensor) and not isinstance(given, CudaTensor) and not non_blocking:
            _wait("blocking copy to the device")
    return isinstance(into[0] if isinstance(into, list) else into, CudaTensor)


@contextlib.contextmanager
def simulated_cuda() -> Iterator[list[Wait]]:
    """The device exists inside; yields the waits written down so far."""
    _waits.clear()
    doubles.clear()
    swapped = torch.__future__.get_swap_module_params_on_conversion()
    with contextlib.ExitStack() as stack:
        for name, answer in (("is_available", True), ("_lazy_init", None), ("current_device", 0), ("device_count", 1)):
            stack.enter_context(mock.patch.object(torch.cuda, name, lambda *_, answer=answer: answer))
        stack.enter_context(mock.patch("torch.cuda.amp.common.amp_definitely_not_available", return_value=False))
        stack.enter_context(mock.patch("torch.cuda.is_bf16_supported", return_value=True))
        stack.enter_context(mock.patch("torch.cuda.is_current_stream_capturing", return_value=False))
        stack.enter_context(mock.patch("torch.autograd._engine_run_backward", _run_backward))
        torch.__future__.set_swap_module_params_on_conversion(True)
        stack.callback(torch.__future__.set_swap_module_params_on_conversion, swapped)
        stack.enter_context(_Functions())
        stack.enter_context(_Operations())
        yield _waits


def on_cuda(batch: dict[str, Any]) -> dict[str, Any]:
    """The same batch with its tensors on the simulated device."""
    return {name: CudaTensor(v.clone()) if isinstance(v, torch.Tensor) else v for name, v in batch.items()}
