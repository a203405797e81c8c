"""Several documents in one text file, divided by a line: ``</DOC>``, ``%%``, ``-----``; and how to
notice that a file is written so."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice

TAG = re.compile(r"</?[A-Za-z][^<>]*>")
NAMED = re.compile(r"\s*<(\w*(?:no|id|name))>\s*(\S+)\s*</\1>\s*", re.IGNORECASE)
"""A line that holds nothing but the name of a document, such as ``<DOCNO> AP880212-0006
</DOCNO>``."""
SAMPLE_LINES = 5000
"""Lines that are looked at for markup: some hundred records, in a few milliseconds."""
MARKED_SHARE = 0.05
"""Share of lines with nothing but a tag from which a file is taken for records: prose and lines of
HTML have none or hardly any."""


def records(lines: Iterable[str], mark: str) -> Iterator[tuple[str | None, str]]:
    """Documents between lines that begin with ``mark``; where the mark is a tag, tags are no text
    and a tagged number names its document.

    >>> list(records(["<D>", "<NO> a1 </NO>", "one", "</D>", "<D>", "two", "</D>"], "</D>"))
    [('a1', 'one'), (None, 'two')]
    >>> list(records(["one", "more", "%%", "two"], "%%"))
    [(None, 'one\\nmore'), (None, 'two')]
    """
    tagged = TAG.fullmatch(mark.strip()) is not None
    name: str | None = None
    held: list[str] = []
    for line in lines:
        line = line.rstrip("\r\n")
        if line.strip().startswith(mark.strip()):
            if name is not None or any(part.strip() for part in held):
                yield name, "\n".join(held)
            name, held = None, []
        elif tagged and (found := NAMED.fullmatch(line)):
            name = found[2]
        elif tagged:
            text = TAG.sub(" ", line)
            if text.strip():
                held.append(text if text != line else line)
        else:
            held.append(line)
    if name is not None or any(part.strip() for part in held):
        yield name, "\n".join(held)


def record_mark(lines: Iterable[str]) -> str | None:
    """The closing tag that divides a file of records, or None for ordinary lines.

    >>> record_mark(["<DOC>", "some words", "</DOC>"] * 5), record_mark(["a <b>bold</b> line"] * 9)
    ('</DOC>', None)
    """
    seen, tags, last = 0, Counter(), None  # type: tuple[int, Counter[str], str | None]
    for line in islice(lines, SAMPLE_LINES):
        text = line.strip()
        seen += bool(text)
        if TAG.fullmatch(text):
            tags[text] += 1
            last = text if text.startswith("</") else last
    closing = {tag: n for tag, n in tags.items() if tag.startswith("</")}
    if not closing or sum(tags.values()) < max(2, MARKED_SHARE * seen):
        return None
    # the outermost tag closes last; a tag that closes as often but earlier lies inside it
    most = max(closing.values())
    return (
        last
        if last is not None and closing[last] >= most - 1
        else max(closing, key=lambda tag: closing[tag])
    )
