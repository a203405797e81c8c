"""The specification, the promises and the contracts under other processors than this one: ``make
test-cpus``.

OpenBLAS and numba can be told to work as for another processor, and the vector kernels to take
another width. Each setting has its own cache of compiled kernels. One line a setting at the end;
the exit code is that of the worst. With ``MARGINS=FOLDER`` in the environment how near each
comparison came to its bound is written there, a file for each setting: ``python tests/margins.py
FOLDER/*`` reports it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time

from llvmlite import binding

TESTS = ["tests/spec", "tests/test_promises.py", "tests/engines", "tests/test_saved_models.py"]
SETTINGS: dict[str, dict[str, str]] = {
    "OpenBLAS for Haswell": {"OPENBLAS_CORETYPE": "Haswell"},
    "OpenBLAS for Zen": {"OPENBLAS_CORETYPE": "Zen"},
    "OpenBLAS for Nehalem": {"OPENBLAS_CORETYPE": "Nehalem"},
    "OpenBLAS for SkylakeX": {"OPENBLAS_CORETYPE": "SkylakeX"},
    "numba for any x86-64": {"NUMBA_CPU_NAME": "generic"},
    "vectors of 128 bits": {"ECKART_VECTOR_BITS": "128"},
    "vectors of 256 bits": {"ECKART_VECTOR_BITS": "256"},
    "vectors of 512 bits": {"ECKART_VECTOR_BITS": "512"},
}
NEEDS = {
    "OpenBLAS for SkylakeX": "avx512f",
    "OpenBLAS for Haswell": "avx2",
    "OpenBLAS for Zen": "avx2",
}


def main(chosen: list[str]) -> int:
    can = binding.get_host_cpu_features()
    worst, lines = 0, []
    for name, setting in SETTINGS.items():
        if chosen and not any(word.lower() in name.lower() for word in chosen):
            continue
        if not can.get(NEEDS.get(name, ""), True):
            lines.append(f"{name:<24} skipped: this processor has no {NEEDS[name]}")
            continue
        begun = time.perf_counter()
        with tempfile.TemporaryDirectory() as cache:
            command = [
                sys.executable,
                "-m",
                "pytest",
                "-q",
                "-n",
                os.environ.get("WORKERS", "2"),
                "--dist",
                "worksteal",
                *TESTS,
            ]
            if folder := os.environ.get("MARGINS"):
                command += ["--margins", os.path.join(folder, name.replace(" ", "_") + ".json")]
            done = subprocess.run(
                command,
                env=os.environ | setting | {"NUMBA_CACHE_DIR": cache},
                capture_output=True,
                text=True,
            )
        last = done.stdout.strip().splitlines()[-1] if done.stdout.strip() else done.stderr[-200:]
        lines.append(f"{name:<24} {last} ({time.perf_counter() - begun:.0f} s)")
        print(lines[-1], flush=True)
        if done.returncode:
            print(
                "\n".join(
                    line
                    for line in done.stdout.splitlines()
                    if line.startswith(("FAILED", "ERROR"))
                ),
                flush=True,
            )
        worst = max(worst, done.returncode)
    print("\n" + "\n".join(lines))
    return worst


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
