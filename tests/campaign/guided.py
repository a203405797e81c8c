"""Damaged files that are guided by coverage (atheris): inputs that reach new lines of the readers
are kept and changed further.

    cd tests && python -m campaign.guided f.mtx --seconds 60        one kind of file; without a name
    all of them, one after another

Only errors in words may come out, as in ``files``. atheris has wheels for some versions of Python
and is no dependency: install it beside the library.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from contextlib import suppress
from importlib import import_module
from pathlib import Path

ROOMS = ["eckart.io", "eckart.factors", "eckart.matrix", "eckart.index"]
COMPILED = [
    "eckart.index.counting",
    "eckart.io.tables.market_kernels",
    "eckart.io.text.word_kernels",
    "eckart.io.vectors.number_kernels",
]
"""Kernels, which are compiled from their bytecode: it must stay as it is."""
READERS = (
    "read",
    "tables.csv_file",
    "tables.long_tables",
    "tables.matrix_market",
    "tables.other_files",
    "tables.row_blocks",
    "tables.frames",
    "tables.triples",
    "models.save",
    "models.checkpoint",
    "models.pack",
    "text.documents",
    "text.records",
    "vectors.files",
    "vectors.text_format",
)


def attack(name: str, seconds: int) -> None:
    """One kind of file, in this process; libFuzzer ends it."""
    import atheris

    with atheris.instrument_imports(include=ROOMS, exclude=COMPILED):
        for reader in READERS:
            import_module(f"eckart.io.{reader}")
        from campaign.files import opened, samples
        from eckart.errors import EckartError

    folder = Path(tempfile.mkdtemp())
    options = samples(folder)[name]
    corpus = folder / "corpus"
    corpus.mkdir()
    (corpus / name).write_bytes((folder / name).read_bytes())
    place = folder / f"case{Path(name).suffix}"

    def once(data: bytes) -> None:
        place.write_bytes(data)
        with suppress(EckartError):
            opened(place, name, options)

    flags = [
        f"-max_total_time={seconds}",
        "-max_len=65536",
        "-timeout=60",
        "-rss_limit_mb=4096",
        "-verbosity=0",
        "-print_final_stats=1",
    ]
    atheris.Setup([sys.argv[0], *flags, f"-artifact_prefix={folder}/", str(corpus)], once)
    atheris.Fuzz()


def main() -> int:
    words = argparse.ArgumentParser()
    words.add_argument("names", nargs="*")
    words.add_argument("--seconds", type=int, default=60)
    ask = words.parse_args()
    if len(ask.names) == 1:
        attack(ask.names[0], ask.seconds)
        return 0
    from campaign.files import samples

    with tempfile.TemporaryDirectory() as folder:
        names = ask.names or sorted(samples(Path(folder)))
    broken = 0
    for name in names:
        run = [sys.executable, "-m", "campaign.guided", name, "--seconds", str(ask.seconds)]
        ended = subprocess.run(run, capture_output=True, text=True)
        told = [
            line.split()[-1]
            for line in ended.stderr.splitlines()
            if "number_of_executed_units" in line
        ]
        print(name, "executions", *told, "BROKEN" if ended.returncode else "", flush=True)
        if ended.returncode:
            broken += 1
            print(ended.stdout[-2000:], ended.stderr[-2000:], flush=True)
    return int(broken > 0)


if __name__ == "__main__":
    sys.exit(main())
