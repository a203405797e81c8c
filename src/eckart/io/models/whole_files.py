"""Files that are there whole or not at all: written under a temporary name beside their place and
renamed."""

from __future__ import annotations

import os
import platform
import re
import secrets
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from eckart.errors import FileError, InputTypeError, written
from eckart.parameters import is_file_name


def atomic_write(path: Any, data: bytes | Iterable[Any]) -> None:
    """Write bytes, or pieces of bytes one after another, to a temporary file beside ``path`` and
    rename it."""
    target = check_place(named(path))
    with replacing(target) as name, open(name, "wb") as out:
        pieces: Iterable[Any] = [data] if isinstance(data, bytes) else data
        for piece in pieces:
            out.write(piece)
        out.flush()
        os.fsync(out.fileno())


@contextmanager
def replacing(target: Path) -> Iterator[str]:
    """The name of a temporary file that takes the place of ``target`` when the block ends well, and
    is removed when it does not."""
    handle, name = temporary_file(target)
    os.close(handle)
    try:
        yield name
        os.replace(name, target)
    except OSError as error:
        os.unlink(name)
        raise FileError(f"{target} cannot be written: {error}") from None
    except BaseException:
        os.unlink(name)
        raise


def check_place(target: Path) -> Path:
    """Refuse a place where no file can be written, before any work is done."""
    if not is_file_name(target):
        raise FileError(f"the name of a file must be one that a file can have, got {str(target)!r}")
    if not target.parent.is_dir():
        raise FileError(f"{target.parent} is not a folder; make it first")
    if target.is_dir():
        raise FileError(f"path must be the name of a file, got the folder {target}")
    if not os.access(target.parent, os.W_OK):
        raise FileError(f"{target.parent} cannot be written to; choose another folder")
    return target


def temporary_file(target: Path) -> tuple[int, str]:
    """A temporary file in the folder of ``target``, open, and its name. What a killed save of this
    target left there is removed.

    The name tells machine and process, so that a save of a process that still runs is left alone;
    the file has the permissions of an ordinary new one.
    """
    start, machine = f".{target.name[:100]}.", f"{zlib.crc32(platform.node().encode()):08x}"
    left = re.compile(
        re.escape(start) + machine + r"-(\d+)-[0-9a-f]{16}" + re.escape(target.suffix)
    )
    try:
        for name in os.listdir(target.parent):
            found = left.fullmatch(name)
            if found is not None and not _runs(int(found[1])):
                with suppress(OSError):
                    os.unlink(target.parent / name)
        name = str(
            target.parent / f"{start}{machine}-{os.getpid()}-{secrets.token_hex(8)}{target.suffix}"
        )
        return os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666), name
    except OSError as error:
        raise FileError(f"{target} cannot be written: {error.strerror}") from None


def _runs(process: int) -> bool:
    """Whether a process of this machine is still there."""
    if os.name == "nt":  # there os.kill would end it
        return _runs_on_windows(process)
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True  # another user's, or not to be known
    return True


def _runs_on_windows(process: int) -> bool:
    import ctypes

    query_information, denied, still_active = 0x1000, 5, 259
    kernel: Any = ctypes.WinDLL("kernel32", use_last_error=True)  # type: ignore[attr-defined, unused-ignore]
    handle = kernel.OpenProcess(query_information, False, process)
    if not handle:
        return bool(ctypes.get_last_error() == denied)  # type: ignore[attr-defined, unused-ignore]
    code = ctypes.c_ulong()
    known = kernel.GetExitCodeProcess(handle, ctypes.byref(code))
    kernel.CloseHandle(handle)
    return not known or code.value == still_active


def named(path: Any) -> Path:
    """The place that the user named."""
    if not isinstance(path, (str, os.PathLike)):
        raise InputTypeError(f"path must be the name of a file, got {written(path)}")
    return Path(path)
