"""What the page is made of: small, complete, and without the network."""

from __future__ import annotations

import re
from pathlib import Path

import eckart

WEB = Path(eckart.__file__).parent / "studio" / "web"
OWN = [
    path
    for path in WEB.rglob("*")
    if path.suffix in {".js", ".css", ".html", ".svg"} and "vendor" not in path.parts
]


def test_the_page_weighs_less_than_600_kilobytes():
    assert sum(path.stat().st_size for path in WEB.rglob("*") if path.is_file()) < 600_000


def test_every_library_of_others_has_its_licence_beside_it():
    notice = (WEB / "vendor" / "NOTICE.md").read_text(encoding="utf-8")
    for path in (WEB / "vendor").iterdir():
        assert path.name == "NOTICE.md" or f"`{path.name}`" in notice, path.name


def test_own_files_name_no_other_host():
    for path in OWN:
        text = path.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"(https?:)?//[a-z0-9-]+\.[a-z]{2,}", text), path


def test_modules_import_only_files_that_are_there():
    for path in OWN:
        if path.suffix != ".js":
            continue
        for target in re.findall(r'from "(\.[^"]+)"', path.read_text(encoding="utf-8")):
            assert (path.parent / target).resolve().is_file(), (path.name, target)


def test_nothing_is_written_that_the_content_security_policy_would_refuse():
    page = (WEB / "index.html").read_text(encoding="utf-8")
    assert "<style" not in page
    assert not re.search(r"\sstyle=|\son\w+=", page)
    assert all("src=" in tag for tag in re.findall(r"<script[^>]*>", page))
    for path in OWN:
        assert not re.search(
            r"\beval\(|new Function\(|innerHTML|insertAdjacentHTML|document\.write",
            path.read_text(encoding="utf-8"),
        ), path
