"""A page of HTML as the tests read it: every tag closed, nothing from outside, nothing that
runs."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser


class Page(HTMLParser):
    """Tags, links and text of a page; complains when a tag is left open."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.links, self.words, self.ids, self.marks = [], [], [], [], [], []
        self.feed(text)
        assert self.open == []
        assert not {"link", "iframe", "object", "embed"} & set(self.tags)
        # its own, which the policy of the page names by its hash
        assert self.tags.count("script") == 1
        script = re.search(r"<script>(.*?)</script>", text, re.S).group(1)
        allowed = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert (
            "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src "
            f"'sha256-{allowed}'"
        ) in text
        self.svg = self.png = 0
        for link in self.links:
            if link.startswith("data:image/svg+xml;base64,"):
                self.svg += 1
                assert b"<svg" in base64.b64decode(link.split(",", 1)[1])
            elif link.startswith("#"):
                assert link[1:] in self.ids
            else:
                self.png += 1
                assert link.startswith("data:image/png;base64,")
                assert base64.b64decode(link.split(",", 1)[1]).startswith(b"\x89PNG")

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.ids += [v for k, v in attrs if k == "id"]
        self.marks += [json.loads(v) for k, v in attrs if k == "data-marks"]
        self.links += [v for k, v in attrs if k in ("src", "href", "action", "data", "srcset")]
        assert not any(k.startswith("on") for k, _ in attrs)
        if tag not in ("meta", "img", "br", "hr"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())
