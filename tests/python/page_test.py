#!/usr/bin/env python3
"""The page in a real browser: against a server with scripted answers (page_fake.py), and against `sluice serve`.

Needs chromium and the package playwright; where one is missing everything is skipped."""
import base64
import json
import sys
import tempfile
import time
from pathlib import Path

import page_browser
import serving
from page_fake import HOSTILE, Fake
from serving import Skip

BROWSER = None
FAKE = None
REFUSED = ("Failed to load resource",)  # what chromium says of every answer that is an error


def page(**options):
    return BROWSER.page(FAKE.url, **options)


# -- chat --------------------------------------------------------------------------------------------------------------

def test_chat_streams_and_measures():
    with page() as one:
        one.open()
        with FAKE.unfinished():
            one.send("tell me about a lock")
            one.tab.wait_for_selector(".message.running .markdown > *")
        one.settle()
        assert "canal lock" in one.last_answer()
        assert one.count(".markdown table") == 1 and one.count(".markdown pre code") == 1
        assert one.count(".markdown ol > li") == 3 and one.count(".markdown ol ul > li") == 2
        stats = one.last_stats()
        assert "tokens/s" in stats and "first token after" in stats and "from the cache" in stats, stats
        assert one.tab.locator(".row.shown").inner_text() == "tell me about a lock"


def test_calls_and_reasoning_are_shown():
    tools = [{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}]
    with page() as one:
        one.open()
        one.tab.click("#open-parameters")
        one.tab.fill("#parameter-tools", "[{")
        assert one.tab.get_attribute("#parameter-tools", "aria-invalid") == "true"
        one.ask("hello")
        assert "tools" not in FAKE.bodies[-1]
        one.tab.fill("#parameter-tools", json.dumps(tools))
        assert one.tab.get_attribute("#parameter-tools", "aria-invalid") == "false"
        with FAKE.unfinished():
            one.send("what about the weather")
            one.tab.wait_for_selector(".message.running .call")
        one.settle()
        assert FAKE.bodies[-1]["tools"] == tools
        last = one.tab.locator(".message.assistant").last
        assert last.locator(".call summary").inner_text() == "Calls get_weather"
        assert last.locator(".call pre").inner_text() == '{\n  "city": "Zürich <b>",\n  "days": 3\n}'
        folded = last.locator("details.reasoning")
        assert folded.get_attribute("open") is None and not folded.locator(".reasoning-text").is_visible()
        folded.locator("summary").click()
        assert folded.locator(".reasoning-text").inner_text() == "I should look it <b>up</b>."
        one.tab.reload()
        one.tab.wait_for_selector(".row")
        one.tab.locator(".row").first.click()
        one.tab.wait_for_selector(".call pre")
        assert "tokens" in one.last_stats()


def test_json_is_shown_on_lines_of_its_own():
    with page() as one:
        one.open()
        one.send("answer as json")
        one.settle()
        assert one.tab.locator(".message.assistant .code pre").inner_text() == '{\n  "a": [\n    1,\n    {\n      "b": null\n    }\n  ]\n}'


def test_pictures_are_dropped_shown_and_sent():
    drop = """(letters) => {
      const data = new DataTransfer();
      const bytes = Uint8Array.from(atob(letters), (letter) => letter.charCodeAt(0));
      data.items.add(new File([bytes], "one.png", {type: "image/png"}));
      document.getElementById("chat").dispatchEvent(new DragEvent("drop", {dataTransfer: data, cancelable: true}));
    }"""
    letters = base64.b64encode((serving.ROOT / "tests/golden/data/vision/pictures/grey.png").read_bytes()).decode()
    with page() as one:
        one.open()
        one.tab.evaluate(drop, letters)
        one.tab.evaluate(drop, letters)
        one.tab.wait_for_selector("#pending .pending-picture:nth-child(2)")
        one.tab.click("#pending .pending-picture:nth-child(2)")
        one.ask("what is it")
        parts = FAKE.bodies[-1]["messages"][-1]["content"]
        assert parts == [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{letters}"}},
                         {"type": "text", "text": "what is it"}], parts
        assert one.count(".message.user canvas.picture") == 1 and one.count("#pending canvas") == 0
        shown = one.tab.locator(".message.user canvas.picture")
        assert (shown.get_attribute("width"), shown.get_attribute("height")) == ("45", "31")


def test_stop_ends_the_request():
    with page() as one:
        one.open()
        before = FAKE.hung_up
        one.send("something long")
        one.until("document.querySelector('.message.running .markdown')?.innerText.includes('word9')")
        one.tab.click("#send")
        one.settle()
        assert "stopped" in one.last_stats() and "word9" in one.last_answer()
        wait_for(lambda: FAKE.hung_up == before + 1)
        assert "You said: and now" in one.ask("and now")


def test_escape_stops():
    with page() as one:
        one.open()
        one.send("something long")
        one.tab.wait_for_selector(".message.running .markdown > *")
        one.tab.keyboard.press("Escape")
        one.settle()
        assert "stopped" in one.last_stats()


def test_regenerate_keeps_both_answers():
    with page() as one:
        one.open()
        one.ask("hello")
        one.tab.click("[aria-label='Another answer']")
        one.tab.wait_for_selector("[aria-label='Version 2 of 2']")
        one.tab.click("[aria-label='Previous version']")
        one.tab.wait_for_selector("[aria-label='Version 1 of 2']")
        assert one.count(".message.assistant") == 1


def test_edit_branches():
    with page() as one:
        one.open()
        one.ask("first question")
        one.ask("second question")
        one.tab.locator(".message.user").first.hover()
        one.tab.locator("[aria-label='Edit and ask again']").first.click()
        one.tab.fill("[aria-label='Edit message']", "another question")
        one.tab.click("text=Ask again")
        one.tab.wait_for_selector("text=You said: another question")
        one.settle()
        assert one.count(".message") == 2
        assert [message["content"] for message in FAKE.bodies[-1]["messages"]] == ["another question"]
        one.tab.click("[aria-label='Previous version']")
        assert one.count(".message") == 4
        one.tab.wait_for_selector("text=You said: second question")


def test_parameters_are_sent():
    with page() as one:
        one.open()
        one.tab.click("#open-parameters")
        for name, value in (("temperature", "0.5"), ("top_k", "7"), ("max_tokens", "4"), ("seed", "11"), ("stop", "END\n\\n\\n"),
                            ("schema", '{"type": "object"}')):
            one.tab.fill(f"#parameter-{name}", value)
        one.tab.fill("#system", "Be brief.")
        one.tab.select_option("#model", "fake-7b")
        one.ask("hello there")
        body = FAKE.bodies[-1]
        wanted = {"temperature": 0.5, "top_k": 7, "max_tokens": 4, "seed": 11, "stop": ["END", "\n\n"], "model": "fake-7b",
                  "response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": {"type": "object"}}}}
        assert wanted.items() <= body.items(), body
        assert "top_p" not in body and "min_p" not in body
        assert body["messages"][0] == {"role": "system", "content": "Be brief."}
        assert "ended at the token limit" in one.last_stats()


def test_nothing_is_sent_for_what_is_empty():
    with page() as one:
        one.open()
        one.ask("hello")
        body = FAKE.bodies[-1]
        assert [message["role"] for message in body["messages"]] == ["user"], body
        assert not {"temperature", "top_p", "top_k", "min_p", "repetition_penalty"} & set(body), body
        one.tab.click("#open-parameters")
        shown = [one.tab.get_attribute(f"#parameter-{name}", "placeholder") for name in ("temperature", "top_p", "top_k")]
        assert shown == ["0.2", "0.9", "default"], shown
        one.tab.select_option("#model", "fake-7b")
        assert one.tab.get_attribute("#parameter-temperature", "placeholder") == "default"


# -- conversations -----------------------------------------------------------------------------------------------------

def test_conversations_stay_and_go():
    with page() as one:
        one.open()
        one.ask("keep this")
        one.tab.click("#new-chat")
        one.ask("and this")
        one.tab.reload()
        one.tab.wait_for_selector(".row >> nth=1")
        one.tab.click(".row-open:has-text('keep this')")
        assert "You said: keep this" in one.last_answer()
        one.tab.click("[aria-label='Rename keep this']")
        one.tab.fill("dialog input", "renamed")
        one.tab.click("dialog >> text=Rename >> nth=-1")
        one.tab.wait_for_selector(".row-open:has-text('renamed')")
        one.tab.hover(".row:has-text('and this')")
        one.tab.click("[aria-label='Delete and this']")
        one.tab.click("dialog button.danger")
        one.until("document.querySelectorAll('.row').length === 1")


def test_export_and_import():
    with page() as one, tempfile.TemporaryDirectory() as folder:
        one.open()
        one.ask("to be exported")
        with one.tab.expect_download() as download:
            one.tab.click("#export")
        file = Path(folder) / "all.json"
        download.value.save_as(file)
        one.tab.set_input_files("#import-file", file)
        one.tab.wait_for_selector("text=1 conversation imported")
        assert one.count(".row") == 2
        for text, reason in (("{", "it is not JSON"), ("[]", "it holds no conversations")):
            file.write_text(text)
            one.tab.set_input_files("#import-file", file)
            one.tab.wait_for_selector(f"text={reason}")


# -- what must not happen ------------------------------------------------------------------------------------------------

def must_be_harmless(one):
    assert one.tab.evaluate("window.hacked") is None
    markdown = "#messages .markdown "
    for tag in ("script", "img", "svg:not(.icon)", "iframe", "style", "object", "form"):
        assert one.count(markdown + tag) == 0, tag
    links = one.tab.eval_on_selector_all(markdown + "a", "nodes => nodes.map(node => node.href)")
    assert all(link.startswith(("http://", "https://")) for link in links), links
    handlers = "nodes => nodes.flatMap(node => node.getAttributeNames()).filter(name => name.startsWith('on'))"
    assert one.tab.eval_on_selector_all("#messages *", handlers) == []


def test_hostile_answer_stays_text():
    with page() as one:
        one.open()
        text = one.ask("be hostile")
        must_be_harmless(one)
        for piece in ("<img src=x onerror=", "<script>window.hacked=1</script>", "<svg onload=", "javascript:window.hacked=1"):
            assert piece in text, piece


def test_hostile_conversation_in_a_file_stays_text():
    node = {"id": "a" * 24, "parent": "", "role": "user", "content": HOSTILE, "order": 1}
    answer = {"id": "b" * 24, "parent": "a" * 24, "role": "assistant", "content": HOSTILE, "order": 2, "model": HOSTILE,
              "error": HOSTILE, "reasoning": HOSTILE}
    evil = {"title": "<img src=x onerror=window.hacked=1>", "nodes": {"x": node, "y": answer, "__proto__": {"polluted": 1}},
            "chosen": {"": "a" * 24}}
    with page() as one, tempfile.TemporaryDirectory() as folder:
        one.open()
        file = Path(folder) / "evil.json"
        file.write_text(page_browser.foreign([evil, 7, None, {"nodes": {"z": {"id": "<b>"}}}]))
        one.tab.set_input_files("#import-file", file)
        one.tab.wait_for_selector("text=1 conversation imported")
        one.tab.click(".row-open")
        one.tab.wait_for_selector(".message.assistant")
        must_be_harmless(one)
        assert one.tab.locator(".row-open").inner_text() == "<img src=x onerror=window.hacked=1>"
        assert one.tab.evaluate("({}).polluted") is None


def test_markdown_is_linear():
    measure = """async (unit) => {
      const {showMarkdown} = await import("./markdown.js");
      const time = (count) => { const start = performance.now(); showMarkdown(document.createElement("div"), unit.repeat(count));
                                return performance.now() - start; };
      time(500);
      return [time(10000), time(40000)];
    }"""
    with page() as one:
        one.open()
        for unit in ("*", "_a", "[", "](", "`", "**a ", "*a ** ", "|-", "> ", "- ", " - a\n", "# ", "~~", "http://", "<", "1. ", "\\", "![a]("):
            short, long = one.tab.evaluate(measure, unit)
            for _ in range(4):  # what disturbs one measurement does not disturb all
                if long < 12 * max(short, 15):
                    break
                short, long = map(min, (short, long), one.tab.evaluate(measure, unit))
            assert long < 12 * max(short, 15), f"{unit!r}: {short:.0f} ms, four times as much {long:.0f} ms"


# -- when the server says no ---------------------------------------------------------------------------------------------

def test_errors_are_told():
    with page(ignore=REFUSED) as one:
        one.open()
        for text, words in (("overflow", "maximum context length is 4096 tokens"), ("overload", "Try again in 3 s"),
                            ("break", "The connection ended before the answer did")):
            one.send(text)
            one.tab.wait_for_selector(f".error-box:has-text('{words}')")
            one.settle()
        one.tab.context.set_offline(True)
        one.send("anyone there")
        one.tab.wait_for_selector(".error-box:has-text('cannot be reached')")
        one.tab.context.set_offline(False)
        one.tab.locator("text=Try again").last.click()
        one.tab.wait_for_selector("text=You said: anyone there")
        assert FAKE.bodies[-1]["messages"][-1]["content"] == "anyone there"


def test_key_is_asked_for_and_kept():
    locked = start(Fake(key="open sesame"))
    with BROWSER.page(locked.url, ignore=REFUSED) as one:
        one.tab.goto(locked.url + "#live")
        for key in ("wrong", "open sesame"):
            one.tab.wait_for_selector("dialog:not([data-old]) input[type=password]")
            assert one.count("dialog") == 1
            one.tab.evaluate("document.querySelector('dialog').dataset.old = 1")
            one.tab.fill("dialog input", key)
            one.tab.click("dialog button.primary")
        one.tab.wait_for_selector("#model option:has-text('fake-7b')", state="attached")
        one.tab.reload()
        one.tab.wait_for_selector(".live-status.good")
        one.tab.click("#tab-chat")
        assert "You said: hello" in one.ask("hello")
    locked.shutdown()


# -- the live view -------------------------------------------------------------------------------------------------------

PAINTED = """id => { const canvas = document.getElementById(id); const {width, height} = canvas;
  const colours = new Set(new Uint32Array(canvas.getContext("2d").getImageData(0, 0, width, height).data.buffer));
  return colours.size; }"""


def stands_still(one):
    picture = one.tab.locator("#canvas-lanes").screenshot()
    one.tab.wait_for_timeout(600)
    return one.tab.locator("#canvas-lanes").screenshot() == picture


def see_load(one):
    """The live view while demo requests run."""
    one.tab.goto(one.url + "#live")
    one.tab.wait_for_selector(".live-status.good")
    one.tab.click("#live-load")
    one.until("parseInt(document.getElementById('lanes-note').innerText) >= 3", 60)
    one.tab.click("summary:has-text('Requests as a table')")
    one.tab.wait_for_selector("#live-rows tr >> nth=2")
    one.until("parseFloat(document.getElementById('value-throughput').innerText) > 0", 120)
    one.until("/[0-9]/.test(document.getElementById('value-tbt').innerText)", 120)
    one.until("document.getElementById('value-kv').innerText.includes('%')")
    for canvas, least in (("canvas-lanes", 12), ("canvas-blocks", 4), ("canvas-ttft", 4), ("canvas-throughput", 3)):
        wait_for(lambda: one.tab.evaluate(PAINTED, canvas) >= least)
    one.tab.click("#live-pause")
    wait_for(lambda: stands_still(one))  # once the frame that was asked for before is drawn
    one.tab.click("#live-pause")
    one.tab.click("#live-load")
    one.tab.wait_for_selector("#live-load:has-text('Make load')")


def test_live_view_under_load():
    with page() as one:
        see_load(one)
        one.tab.hover("#canvas-lanes", position={"x": 400, "y": 90})
        one.until("document.getElementById('lanes-note').innerText.startsWith('0 running')", 60)


# -- everybody -----------------------------------------------------------------------------------------------------------

def test_phone():
    overflow = "document.documentElement.scrollWidth > innerWidth || document.getElementById('live').scrollWidth > innerWidth"
    with page(viewport={"width": 390, "height": 844}, has_touch=True) as one:
        one.open()
        one.ask("tell me about a lock")
        assert not one.tab.evaluate(overflow)
        one.tab.click("#open-sidebar")
        one.tab.click("#new-chat")
        one.tab.wait_for_selector(".welcome")
        one.tab.click("#tab-live")
        one.tab.wait_for_selector(".live-status.good")
        assert not one.tab.evaluate(overflow)
        one.tab.click("#tab-lab")
        one.tab.wait_for_selector("#lab .live-status.good")
        assert not one.tab.evaluate(overflow.replace("'live'", "'lab'"))


def test_theme_is_kept():
    with page(color_scheme="light") as one:
        one.open()
        one.tab.click("#theme")
        one.tab.reload()
        assert one.tab.evaluate("getComputedStyle(document.documentElement).colorScheme") == "dark"


def test_everything_has_a_name():
    nameless = """nodes => nodes.filter(node => !(node.innerText?.trim() || node.getAttribute("aria-label") || node.labels?.length))
      .map(node => node.outerHTML.slice(0, 120))"""
    with page() as one:
        one.open()
        one.ask("hello")
        one.tab.click("#open-parameters")
        for view in ("#tab-chat", "#tab-live", "#tab-lab"):
            one.tab.click(view)
            visible = "button:visible, select:visible, textarea:visible, input:visible"
            assert one.tab.locator(visible).evaluate_all(nameless) == []
        assert one.tab.locator("canvas:not([role=img][aria-label])").count() == 0


def test_keyboard_alone():
    with page() as one:
        one.open()
        one.ask("hello")
        one.tab.keyboard.press("ArrowUp")
        one.tab.wait_for_selector("[aria-label='Edit message']")
        one.tab.keyboard.type(" again")
        one.tab.keyboard.press("Enter")
        one.tab.wait_for_selector("text=You said: hello again")
        one.settle()
        one.tab.keyboard.press("Control+Shift+O")
        one.tab.wait_for_selector(".welcome")
        one.tab.focus("#tab-chat")
        one.tab.keyboard.press("ArrowRight")
        one.tab.wait_for_selector("#live:not([hidden])")


def see_lab(one):
    """Sliders that the planner answers, the engine's point, and schemes played from what was served."""
    one.tab.click("#tab-live")
    one.tab.click("#live-load")
    one.tab.click("#tab-lab")
    one.tab.wait_for_selector("#lab .live-status.good")
    one.until("document.getElementById('lab-engine').innerText.startsWith('now: ')", 120)
    assert "this engine now" in one.tab.get_attribute("#lab-roofline", "aria-label")
    fact = "document.getElementById('lab-fact-{}').innerText"
    before = one.tab.evaluate(fact.format("rate"))
    one.tab.fill("#lab-batch", "6")
    assert one.tab.inner_text("#lab-batch-value") == "64"
    one.until(fact.format("rate") + f" !== '{before}'")
    stored = one.tab.evaluate(fact.format("memory"))
    one.tab.select_option("#lab-weights", "BF16")
    one.until(fact.format("memory") + f" !== '{stored}'")
    one.tab.select_option("#lab-device", "H200")
    one.until("document.getElementById('lab-machine').innerText.startsWith('H200')")
    for canvas in ("lab-roofline", "lab-batches"):
        wait_for(lambda: one.tab.evaluate(PAINTED, canvas) >= 4)
    one.tab.click("#lab-play")
    one.until("document.getElementById('lab-trace').innerText.endsWith('requests of this engine')")
    one.tab.fill("#lab-time", "500")
    one.tab.wait_for_selector("#lab-play:has-text('Play')")
    for scheme in ("static", "dynamic", "iteration", "continuous"):
        wait_for(lambda: one.tab.evaluate(PAINTED, f"lab-lanes-{scheme}") >= 3)


def test_lab_view():
    with page() as one:
        one.open("#lab")
        one.tab.wait_for_selector("#lab .live-status.good")
        assert one.tab.title() == "sluice: lab"
        one.tab.fill("#lab-batch", "4")
        one.until("document.getElementById('lab-fact-tpot').innerText === '26 ms'")
        one.tab.focus("#tab-lab")
        one.tab.keyboard.press("ArrowRight")
        one.tab.wait_for_selector("#chat:not([hidden])")


# -- the program ---------------------------------------------------------------------------------------------------------

def test_the_program():
    with page_browser.serve() as url, BROWSER.page(url) as one:
        _, headers, _ = page_browser.get(url)
        headers = {name.lower(): value for name, value in headers.items()}
        assert headers["content-security-policy"].startswith("default-src 'self'"), headers
        one.open()
        one.tab.click("#open-parameters")
        one.tab.fill("#parameter-temperature", "0")
        one.tab.fill("#parameter-max_tokens", "24")
        first = one.ask("What is the largest ocean on Earth?")
        assert "Pacific" in first and "tokens/s" in one.last_stats(), first
        one.tab.click("[aria-label='Another answer']")
        one.tab.wait_for_selector("[aria-label='Version 2 of 2']")
        one.settle()
        assert one.last_answer() == first
        one.tab.press("#input", "ArrowUp")
        one.tab.fill("[aria-label='Edit message']", "Who wrote Romeo and Juliet?")
        one.tab.keyboard.press("Enter")
        one.tab.wait_for_selector(".bubble:has-text('Romeo')")
        one.settle()
        assert "Shakespeare" in one.last_answer(), one.last_answer()
        one.tab.fill("#parameter-max_tokens", "2000")
        one.send("Tell me a very long story about a river.")
        one.tab.wait_for_selector(".message.running .markdown > *")
        one.tab.click("#send")
        one.settle()
        wait_for(lambda: page_browser.metrics(url)["sluice_requests_running"] == 0)
        see_load(one)
        wait_for(lambda: page_browser.metrics(url)["sluice_requests_running"] == 0)
        see_lab(one)


# ------------------------------------------------------------------------------------------------------------------------

def wait_for(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "it did not come about in 60 s"
        time.sleep(0.05)


def start(fake):
    import threading
    threading.Thread(target=fake.serve_forever, daemon=True).start()
    return fake


def main():
    global BROWSER, FAKE
    tests = serving.tests_of(sys.modules[__name__])
    try:
        BROWSER = page_browser.Browser()
    except Skip as reason:
        print(f"the page is not tested: {reason}")
        print(f"0 passed, 0 failed, {len(tests)} skipped")
        return 0
    FAKE = start(Fake())
    try:
        return serving.run_tests(tests)
    finally:
        BROWSER.close()


if __name__ == "__main__":
    sys.exit(main())
