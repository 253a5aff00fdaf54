"""One sentence when the system's OpenGL for off-screen rendering is missing. It stops nothing."""

import ctypes
import sys

LIBRARIES = ("libEGL.so.1", "libOSMesa.so.8")


def found(library: str) -> bool:
    """Whether the dynamic loader can open the library."""
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def main(libraries: tuple[str, ...] = LIBRARIES) -> None:
    """Print the sentence on Linux when none of the libraries is there; other systems ship theirs."""
    if sys.platform == "linux" and not any(map(found, libraries)):
        print(
            "Simulated scenes render through EGL or OSMesa and neither was found: install it"
            " (Debian, Ubuntu: apt-get install libegl1 libgl1-mesa-dri; Fedora: dnf install mesa-libEGL"
            " mesa-dri-drivers); everything that renders nothing works without it.",
            file=sys.stderr,
        )


if __name__ == "__main__":
    main()
