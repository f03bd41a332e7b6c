"""Your trace in Voila: files dropped, looked at, asked what if."""

import gzip
import json

from scene_checks import is_cut

YOUR_TRACE = "voila/render/your_trace.ipynb"
DROP = """([name, text]) => {
  const data = new DataTransfer();
  data.items.add(new File([text], name));
  const target = document.querySelector(".labkit-drop");
  target.dispatchEvent(new DragEvent("dragover", { dataTransfer: data, bubbles: true, cancelable: true }));
  target.dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true }));
}"""


def profile(rank: int, num_kernels: int) -> str:
    kernels = [
        {
            "ph": "X",
            "cat": "kernel",
            "name": "<img src=x onerror=alert(1)>",
            "pid": 0,
            "tid": 7,
            "ts": 100 * k,
            "dur": 60,
        }
        for k in range(num_kernels)
    ]
    return json.dumps({"traceEvents": kernels, "distributedInfo": {"rank": rank, "world_size": 2}})


def test_a_run_is_dropped_and_asked_what_if(voila, open_page, pytestconfig):
    page = open_page(f"{voila}/{YOUR_TRACE}", height=1000)
    page.locator(".labkit-drop").wait_for()
    page.locator("input[type=file]").set_input_files(pytestconfig.rootpath / "assets" / "pipeline_1f1b.parquet")
    report = page.locator(".labkit-report").first
    report.wait_for()
    assert "27.3%" in report.inner_text()
    page.get_by_role("tab", name="What if").click()
    slider = page.get_by_role("slider", name="All computation takes")
    slider.wait_for()
    slider.press("ArrowLeft")  # 0.75
    slider.press("ArrowLeft")  # 0.5
    page.wait_for_function("[...document.querySelectorAll('dd')].some((e) => e.textContent.startsWith('-4'))")
    page.get_by_role("tab", name="As a timeline").click()
    page.get_by_text("times: replayed").wait_for()


def test_profiler_files_of_two_ranks_with_markup_in_their_names(voila, open_page, tmp_path):
    paths = [tmp_path / f"<b>rank{rank}.json.gz" for rank in range(2)]
    for rank, path in enumerate(paths):
        path.write_bytes(gzip.compress(profile(rank, 20_000).encode()))  # more than one piece
    page = open_page(f"{voila}/{YOUR_TRACE}", height=1000)
    page.locator(".labkit-drop").wait_for()
    page.locator("input[type=file]").set_input_files(paths)
    page.locator(".labkit-timeline").wait_for()
    assert "imported" in page.locator(".labkit-timeline .lk-badge").inner_text()
    assert page.locator(".labkit img, .labkit b b").count() == 0
    page.get_by_role("tab", name="What if").click()
    page.get_by_text("which kernel waits for which").wait_for()


def test_what_is_no_trace_is_told_and_the_page_lives_on(voila, open_page):
    page = open_page(f"{voila}/{YOUR_TRACE}", width=360)
    page.locator(".labkit-drop").wait_for()
    page.evaluate(DROP, ["page.json", "<html>not a trace</html>"])
    page.locator(".lk-problem").wait_for()
    assert page.locator(".lk-problem").inner_text().startswith("page.json is no profiler file")
    assert not is_cut(page)
    page.evaluate(DROP, ["good.json", profile(0, 3)])
    page.locator(".labkit-timeline").wait_for()
    assert page.locator(".lk-problem").is_hidden()
