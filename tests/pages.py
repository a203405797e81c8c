"""A page of HTML as the tests read it: every tag closed, nothing from outside, nothing that runs."""

from __future__ import annotations

import base64
from html.parser import HTMLParser


class Page(HTMLParser):
    """Tags, links and text of a page; complains when a tag is left open."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.links, self.words = [], [], [], []
        self.feed(text)
        assert self.open == []
        assert not {"script", "link", "iframe", "object", "embed"} & set(self.tags)
        for link in self.links:
            assert link.startswith("data:image/png;base64,")
            assert base64.b64decode(link.split(",", 1)[1]).startswith(b"\x89PNG")

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
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
