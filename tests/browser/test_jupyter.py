"""The widget in JupyterLab itself: a notebook is opened, its cells are run, and one thing is done
in the view of each verb."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
import threading

import pytest

pytestmark = pytest.mark.slow

VIEWS = (
    ("reduce", 'eckart.view(folder + "/digits.safetensors", folder + "/digits.csv", height=560)'),
    ("complete", 'eckart.view(folder + "/films.safetensors", height=560)'),
    ("explain", 'eckart.view(folder + "/news.safetensors", folder + "/news.csv", height=560)'),
    ("embed", 'eckart.view(folder + "/words.safetensors", height=560)'),
)
FRAME = "iframe[title='eckart studio']"


def notebook(folder, models):
    cells = [f"import eckart\nfolder = {str(models)!r}", *(line for _, line in VIEWS)]
    entries = [
        {
            "cell_type": "code",
            "id": f"cell{at}",
            "metadata": {},
            "execution_count": None,
            "outputs": [],
            "source": line,
        }
        for at, line in enumerate(cells)
    ]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    (folder / "models.ipynb").write_text(
        json.dumps({"cells": entries, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5})
    )


@pytest.fixture(scope="module")
def lab(browser, studio, tmp_path_factory):
    """JupyterLab as a process, in a folder with a notebook that looks at the studio's models; the
    address of the notebook."""
    for name in ("jupyterlab", "anywidget", "ipykernel"):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed: pip install jupyterlab anywidget")
    folder = tmp_path_factory.mktemp("notebook")
    notebook(folder, studio.folder)
    # Nothing of the user's own Jupyter is read or written.
    places = ("CONFIG_DIR", "DATA_DIR", "RUNTIME_DIR", "LAB_SETTINGS_DIR", "LAB_WORKSPACES_DIR")
    names = [
        *(f"JUPYTER{'' if name.startswith('LAB') else '_'}{name}" for name in places),
        "IPYTHONDIR",
    ]
    own = {name: str(tmp_path_factory.mktemp(name.lower())) for name in names}
    words = [
        "--no-browser",
        "--allow-root",
        "--ip=127.0.0.1",
        "--port=0",
        "--ServerApp.token=notebook",
        f"--ServerApp.root_dir={folder}",
        "--LabApp.news_url=None",
        "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
    ]
    process = subprocess.Popen(
        [sys.executable, "-m", "jupyterlab", *words],
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env=os.environ | own | {"PYTHONUNBUFFERED": "1"},
    )
    assert process.stderr is not None
    found = None
    for line in process.stderr:
        found = re.search(r"http://127\.0\.0\.1:(\d+)/lab", line)
        if found:
            break
    assert found, "JupyterLab ended before it told its address"
    # what is not read would stop it
    drain = threading.Thread(target=process.stderr.read, daemon=True)
    drain.start()
    yield f"http://127.0.0.1:{found.group(1)}/lab/tree/models.ipynb?token=notebook&reset"
    process.terminate()
    process.wait(timeout=30)


def test_every_verb_has_its_view_in_jupyterlab(browser, lab):
    page, complaints = browser.new_page(viewport={"width": 1280, "height": 1000}), []
    page.set_default_timeout(60_000)
    page.on("console", lambda said: complaints.append(said.text) if said.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(lab)
    page.wait_for_selector(".jp-Notebook .jp-CodeCell")
    page.wait_for_selector("text=Kernel status: Idle", state="attached")
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
    # A slow machine asks for a kernel although one is about to be there.
    page.locator(f".jp-Dialog button.jp-mod-accept, {FRAME}").first.wait_for()
    if page.locator(".jp-Dialog").count():
        page.locator(".jp-Dialog button.jp-mod-accept").click()
    page.wait_for_function(f'() => document.querySelectorAll("{FRAME}").length === {len(VIEWS)}')

    def seen(verb: str):
        """The view of a verb, rolled into sight; its heading is the name of the model."""
        at = [name for name, _ in VIEWS].index(verb)
        page.locator(".jp-CodeCell").nth(at + 1).scroll_into_view_if_needed()
        room = page.frame_locator(FRAME).nth(at)
        room.locator("text=certificate holds").wait_for()
        return room

    reduce = seen("reduce")
    reduce.get_by_role("heading", name="digits", exact=True).wait_for()
    reduce.locator("text=1,797 points in view").wait_for()
    reduce.locator('a:text-is("Components")').click()
    reduce.locator("text=How much each component keeps").wait_for()
    complete = seen("complete")
    field = complete.get_by_role("combobox", name="user, by id or title")
    field.fill("user 12")
    complete.get_by_role("option", name="user 12", exact=False).first.wait_for()
    field.press("Enter")
    complete.locator(".ranked li").first.wait_for()
    explain = seen("explain")
    explain.get_by_label("name", exact=True).fill("my topic")
    explain.get_by_role("button", name="Keep the name").click()
    explain.locator(".topic-list strong", has_text="my topic").wait_for()
    embed = seen("embed")
    embed.get_by_role("combobox", name="find a word").fill("goal")
    embed.get_by_role("option", name="goal", exact=False).first.wait_for()
    embed.get_by_role("combobox", name="find a word").press("Enter")
    embed.get_by_role("heading", name="Nearest to goal").wait_for()
    # A cell that is moved takes its view along.
    page.locator(".jp-CodeCell").last.locator(".jp-InputPrompt").click()
    page.locator('[data-command="notebook:move-cell-up"]').first.click()
    page.wait_for_function(
        '() => document.querySelectorAll(".jp-CodeCell")[3].innerText.includes("words.safetensors")'
    )
    page.frame_locator(FRAME).nth(2).locator("text=PMI of").wait_for()
    assert complaints == []
    page.close()
