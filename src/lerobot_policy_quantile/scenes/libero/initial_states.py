"""Reads LIBERO's initial states, which are pickles in a zip file, with an unpickler that allows only numpy arrays."""

import io
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from lerobot_policy_quantile.scenes.contract import Array


def _encode(text: str, encoding: str) -> bytes:
    """Stands in for `_codecs.encode`, by which old pickles write bytes."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"initial states may only encode latin1; got {encoding!r}")
    return text.encode("latin1")


_reconstruct = np.zeros(1).__reduce__()[0]
_ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("_codecs", "encode"): _encode,
}


class _ArraysOnly(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(
                f"initial states may only hold numpy arrays; the file asks for {module}.{name}"
            )
        return _ALLOWED[module, name]


def read_states(path: Path) -> Float[Array, "..."]:
    """The array of finite float64 numbers in a file, of any shape."""
    if not zipfile.is_zipfile(path):
        raise ValueError(f"initial states must be a zip archive; got {path}")
    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if name.endswith("/data.pkl")]
        if len(names) != 1:
            raise ValueError(f"initial states must hold one data.pkl; got {len(names)} in {path}")
        content = archive.read(names[0])
    try:
        states = _ArraysOnly(io.BytesIO(content)).load()
    except pickle.UnpicklingError as error:
        raise ValueError(f"initial states of {path} were refused: {error}") from error
    if not (isinstance(states, np.ndarray) and states.dtype == np.float64):
        raise ValueError(f"initial states must be a float64 array; got {type(states).__name__} in {path}")
    if not np.isfinite(states).all():
        raise ValueError(f"initial states must be finite; {path} holds NaN or infinity")
    return states


def load_initial_states(path: Path) -> Float[Array, "index n"]:
    """The stored simulator states of a task, one row per index."""
    states = read_states(path)
    if states.ndim != 2:
        raise ValueError(f"initial states must be a float64 array of two axes; got {states.ndim} in {path}")
    return states
