"""Flows in a real Chromium, each as a person goes through it; pictures of every page are made on the way.

Those that matter most are in `make test`; the others, marked as the browser's, and all together in `make browser`.
"""

import re
import threading
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from bolide import Admin, Consumer, Producer, StartFrom
from bolide.protocol.bodies import GroupConfig
from bolide.testing import cluster
from bolide.testing.blocking import Cluster
from tests.cli.processes import wait_for
from tests.dashboard.browser import LIMIT_MS, Watched, demand_chromium, opened_browser, picture_store, served
from tests.dashboard.letters import bury
from tests.dashboard.life import at_work

in_make_browser = pytest.mark.browser
TOPICS = {"Orders": 8, "Payments": 8, "Refunds": 4, "Invoices": 4, "Shipments": 4, "Audit": 2, "Clicks": 8}
GROUPS = {"billing-cg": ("Payments", 5), "warehouse-cg": ("Orders", 20), "reports-cg": ("Orders", 37)}
ORDER = b'{"order": %d, "customer": {"name": "Ada", "vip": true}, "lines": [{"sku": "B-%d", "count": 2}]}'
ORDERS = 300
LETTERS, DECLINED = 56, 42  # one a second is slow enough to be stopped
HOSTILE = '<script>alert(1)</script>"><img src=x onerror=alert(2)>{{7*7}}\u202e\x00'
CHART_LIMIT_MS = 60_000  # a chart has two points at least, which come every 15 s
REFRESH_LIMIT_MS = 60_000  # a page that is open asks again every 15 s

expect.set_options(timeout=LIMIT_MS)  # as long as everything else may take


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    demand_chromium()
    with opened_browser() as found:
        yield found


@pytest.fixture(scope="module")
def shop() -> Iterator[Cluster]:
    """A cluster that looks like one at work."""
    demand_chromium()
    settings = {"traceTopicEnable": "true", "enablePropertyFilter": "true", "brokerName": "broker-a"}
    with picture_store() as directory, cluster(settings=settings, directory=directory) as rocket:
        for topic, count in TOPICS.items():
            rocket.create_topic(topic, count)
        with Producer("shop", rocket.namesrv, trace=True) as producer, Admin(rocket.namesrv) as admin:
            for n in range(ORDERS):
                tag = "eu" if n % 3 else "us"
                producer.send("Orders", ORDER % (n, n % 7), keys=[f"order-{n}"], tags=tag, properties={"shop": tag})
                producer.send("Payments", b"paid %d" % n, keys=[f"order-{n}"])
            for level in (14, 17, 17, 18, 18, 18):
                producer.send("Invoices", b"remind", delay_level=level)
            producer.send("Shipments", b"later", delay=7200)
            for group, (topic, offset) in GROUPS.items():
                admin.set_group(GroupConfig(group_name=group))
                admin.reset_group(group, topic, offset=offset)
            properties = {"<i>": HOSTILE.replace("\x00", "")}
            producer.send("Orders", HOSTILE.encode(), keys=["hostile"], tags="<b>", properties=properties)
        with Consumer("packing-cg", "Orders", rocket.namesrv, start_from=StartFrom.oldest(), trace=True) as packing:
            for _, message in zip(range(ORDERS), packing, strict=False):
                message.ack()
        reasons = {f"pay-{n}": "card declined" if n % 4 else "timeout of the bank" for n in range(LETTERS)}
        bury(rocket.namesrv, "refunds-cg", "Refunds", reasons)
        with at_work(rocket.namesrv):
            yield rocket


@pytest.fixture(scope="module")
def address(shop: Cluster) -> Iterator[str]:
    with served(shop.namesrv, allows_changes=True) as url:
        yield url


@pytest.fixture
def visitor(browser: Browser, address: str) -> Iterator[Watched]:
    found = Watched(browser, address)
    yield found
    found.close()


def test_a_message_is_found_by_its_key_and_its_link_shows_it_to_a_colleague(
    visitor: Watched, browser: Browser, address: str
) -> None:
    page = visitor.page
    visitor.go("/messages")
    page.fill("[name=topic]", "Orders")
    page.fill("[name=key]", "order-42")
    page.click("button.primary")
    visitor.settled()
    expect(page.locator("#did")).to_contain_text("1 shown")
    page.click("tbody a.id")
    visitor.settled()
    expect(page.locator("main")).to_contain_text("order-42")
    visitor.picture("message")
    link = page.url
    visitor.back("Messages")
    expect(page.locator("[name=key]")).to_have_value("order-42")
    colleague = Watched(browser, address)
    colleague.page.goto(link)
    colleague.settled()
    expect(colleague.page.locator("main")).to_contain_text("B-0")
    colleague.page.click("text=Trace")
    colleague.settled()
    expect(colleague.page.locator("svg.timeline").first).to_be_visible()
    assert colleague.page.evaluate("document.documentElement.scrollWidth") <= 1280
    box = colleague.page.locator("svg.timeline").first.bounding_box()
    assert box is not None
    assert box["x"] + box["width"] <= 1280
    colleague.picture("trace")
    colleague.page.click("text=Consumption")
    colleague.settled()
    expect(colleague.page.locator("main")).to_contain_text("warehouse-cg")
    colleague.close()


@in_make_browser
def test_the_live_tail_shows_what_comes_is_paused_and_goes_on(visitor: Watched, shop: Cluster) -> None:
    page, stop = visitor.page, threading.Event()

    def send() -> None:
        with Producer("clicks", shop.namesrv) as producer:
            number = 0
            while not stop.wait(0.1):
                producer.send("Clicks", b"click %d" % number, tags="web", keys=[f"c{number}"])
                number += 1

    sender = threading.Thread(target=send)
    sender.start()
    try:
        visitor.go("/topics/Clicks/tail")
        page.wait_for_selector("#tail tr:nth-child(5)")
        expect(page.locator("#tail-count")).to_contain_text("came")
        visitor.picture("tail")
        page.keyboard.press("p")
        expect(page.locator("#tail-held")).to_contain_text("more")
        before = page.locator("#tail tr").count()
        expect(page.locator("#tail-held")).not_to_contain_text("0 more")
        assert page.locator("#tail tr").count() == before
        page.click("[data-pause]")
        page.wait_for_selector(f"#tail tr:nth-child({before + 1})")
        page.click("#tail a.id >> nth=0")
        visitor.settled()
        expect(page.locator("main")).to_contain_text("click ")
        visitor.back("Live: Clicks")
    finally:
        stop.set()
        sender.join()


@in_make_browser
def test_a_group_whose_members_differ_says_how(visitor: Watched, shop: Cluster) -> None:
    with Consumer("torn-cg", {"Orders": "eu"}, shop.namesrv), Consumer("torn-cg", {"Orders": "us"}, shop.namesrv):
        visitor.go("/groups")
        row = visitor.page.locator("tr", has_text="torn-cg")
        expect(row.locator(".mark.bad")).to_have_text("conflict")
        row.locator("a.name").click()
        visitor.settled()
        expect(visitor.page.locator(".differs").first).to_contain_text("it wants")
        visitor.picture("conflict")
        visitor.back("Groups")


def test_a_group_is_reset_after_a_preview_with_its_name_typed(visitor: Watched) -> None:
    page = visitor.page
    visitor.go("/groups/reports-cg")
    page.click("text=Reset…")
    visitor.settled()
    page.select_option("[name=to]", "earliest")
    page.click("text=Preview")
    visitor.settled()
    expect(page.locator(".words")).to_contain_text("will be consumed again")
    visitor.picture("reset")
    page.fill("[name=typed]", "reports-cg")
    page.click("main button.danger")  # a label says apply, too
    visitor.settled()
    expect(page.locator("main")).to_contain_text("Where it is now")
    visitor.back("Reset reports-cg")
    expect(page.locator(".words")).to_contain_text("nothing moves")


@in_make_browser
def test_dead_letters_are_filtered_tried_dry_sent_and_stopped(visitor: Watched) -> None:
    page = visitor.page
    visitor.go("/dead")
    visitor.picture("dead")
    page.click("text=refunds-cg")
    visitor.settled()
    page.fill("[name=reason]", "declined")
    page.click("text=Filter")
    visitor.settled()
    expect(page.locator("main")).to_contain_text(f"{DECLINED} letters found")
    visitor.picture("dead-letters")
    visitor.back("Dead letters of refunds-cg")
    expect(page.locator("main")).to_contain_text(f"{LETTERS} letters found")
    page.go_forward()
    expect(page.locator("main")).to_contain_text(f"{DECLINED} letters found")
    visitor.settled()
    page.select_option("[name=which]", "all")
    page.fill("[name=rate]", "1")
    page.click("text=Dry run")
    visitor.settled()
    expect(page.locator("main")).to_contain_text(f"{DECLINED} letters would be sent")
    page.click(f"text=Send {DECLINED} again")
    visitor.settled()
    expect(page.locator("#progress")).to_contain_text(re.compile(rf"[1-9]\d* of {DECLINED} sent"))
    visitor.picture("resend")
    page.click("text=Stop")
    visitor.settled()
    expect(page.locator("#progress")).to_contain_text("stopped")


@in_make_browser
def test_a_topic_is_created_changed_and_deleted(visitor: Watched) -> None:
    page = visitor.page
    visitor.go("/topics")
    page.click("text=Create…")
    visitor.settled()
    page.type("[name=name]", "has space")
    expect(page.locator("#name-problem .bad")).to_be_visible()
    page.fill("[name=name]", "Returns")
    expect(page.locator("#name-problem")).to_contain_text("this name is free")
    visitor.picture("topic-create")
    page.click("main button.primary")
    visitor.settled()
    page.click("text=Change…")
    visitor.settled()
    page.fill("[name=queues]", "2")
    page.fill("[name=read]", "2")
    page.click("text=Preview")
    visitor.settled()
    expect(page.locator("main")).to_contain_text("What will happen")
    page.click("text=Apply")
    visitor.settled()
    page.click("text=Delete…")
    visitor.settled()
    page.fill("[name=typed]", "Returns")
    page.click("main button.danger")
    visitor.settled()
    expect(page.locator("h1")).to_have_text("Topics")
    visitor.back("Not there")  # the form that deleted it
    visitor.complaints.clear()  # Chromium notes the 404 itself


@in_make_browser
def test_a_message_is_sent_and_its_receipt_opened(visitor: Watched) -> None:
    page = visitor.page
    visitor.go("/send?topic=Audit")
    page.fill("[name=body]", '{"by": "hand"}')
    page.fill("[name=keys]", "by-hand")
    visitor.picture("send")
    page.click("main button.primary")
    visitor.settled()
    page.click("tbody a.id")
    visitor.settled()
    expect(page.locator("main")).to_contain_text("by-hand")


@in_make_browser
def test_one_signs_in_is_refused_and_signs_out(browser: Browser, shop: Cluster, tmp_path) -> None:
    passwords = tmp_path / "passwords"
    passwords.write_text("ada:lovelace\n")
    passwords.chmod(0o600)
    with served(shop.namesrv, password_file=passwords) as url:
        visitor = Watched(browser, url)
        page = visitor.page
        page.goto(f"{url}/groups")
        expect(page.locator("h1")).to_have_text("Sign in")
        visitor.picture("login")
        page.fill("[name=user]", "ada")
        page.fill("[name=password]", "wrong")
        page.click("button.primary")
        expect(page.locator(".note")).to_contain_text("another password")
        visitor.complaints.clear()  # Chromium notes the 401 itself
        page.fill("[name=user]", "ada")
        page.fill("[name=password]", "lovelace")
        page.click("button.primary")
        page.goto(f"{url}/groups")
        visitor.settled()
        expect(page.locator(".who")).to_contain_text("ada")
        page.click("text=sign out")
        expect(page.locator("h1")).to_have_text("Sign in")
        page.goto(f"{url}/groups")
        expect(page.locator("h1")).to_have_text("Sign in")
        page.go_back()
        expect(page.locator("h1")).to_have_text("Sign in")
        visitor.close()


@in_make_browser
def test_read_only_shows_no_button_that_changes_anything(browser: Browser, shop: Cluster) -> None:
    with served(shop.namesrv) as url:
        visitor = Watched(browser, url)
        for path in ("/", "/topics", "/topics/Orders", "/groups/billing-cg", "/dead/refunds-cg", "/send", "/settings"):
            visitor.go(path)
            assert visitor.page.locator("main form[method=post] button").count() == 0, path
            for words in ("Create…", "Delete…", "Change…", "Reset…", "Send…"):
                assert visitor.page.get_by_text(words, exact=True).count() == 0, path
        visitor.back("Send")
        visitor.close()


@in_make_browser
def test_a_filter_is_in_the_address_and_a_dashboard_that_goes_away_is_told_greyed_and_found_again(
    browser: Browser, shop: Cluster
) -> None:
    with served(shop.namesrv) as url:
        visitor = Watched(browser, url)
        page = visitor.page
        visitor.go("/groups")
        page.fill(".filter [name=q]", "reports")
        page.wait_for_url("**/groups?q=reports**")
        expect(page.locator("tbody tr")).to_have_count(1)
        page.reload()
        visitor.settled()
        expect(page.locator(".filter [name=q]")).to_have_value("reports")
        expect(page.locator("tbody tr")).to_have_count(1)
        page.locator("h1").click()  # nobody types now
    for _ in range(3):
        with page.expect_event("requestfailed", lambda request: "/menu" not in request.url):
            page.keyboard.press("r")
    expect(page.locator("main.old")).to_be_visible()
    expect(page.locator(".lost")).to_contain_text("does not answer")
    expect(page.locator("tbody tr")).to_have_count(1)  # what was seen stays
    with served(shop.namesrv, port=int(url.rpartition(":")[2])):
        visitor.complaints.clear()  # Chromium notes the lost connections itself
        page.keyboard.press("r")
        expect(page.locator("main:not(.old):not(:has(.lost)) tbody tr")).to_have_count(1)
        visitor.close()


EVERY_PAGE = (
    *(
        "/",
        "/messages?topic=Spread",
        "/messages/{id}?topic=Spread",
        "/groups",
        "/groups/away-cg",
        "/groups/away-cg/reset",
    ),
    *("/dead", "/dead/away-cg", "/topics", "/topics/Spread", "/topics/Spread/tail", "/topics/Spread/edit", "/clients"),
    *("/send", "/delayed", "/transactions", "/access", "/settings"),
)


@in_make_browser
def test_a_broker_dies_while_every_page_is_open_and_each_says_so_and_recovers(browser: Browser) -> None:
    with cluster(brokers=2) as rocket, served(rocket.namesrv, allows_changes=True) as url:
        rocket.create_topic("Spread", 2)
        with Producer("spread", rocket.namesrv) as producer, Admin(rocket.namesrv) as admin:
            found = producer.send("Spread", b"there before").msg_id
            admin.set_group(GroupConfig(group_name="away-cg"))
            admin.reset_group("away-cg", "Spread", offset=0)
        visitor = Watched(browser, url)
        pages = {}
        for path in EVERY_PAGE:
            page = pages[path] = visitor.new_page()
            page.goto(url + path.replace("{id}", found))
            page.wait_for_selector("main footer.asked")
        rocket.brokers[1].kill()
        for page in pages.values():
            page.bring_to_front()
            page.wait_for_selector(".away:visible", timeout=REFRESH_LIMIT_MS)
        visitor.page = pages["/"]
        visitor.page.bring_to_front()
        visitor.picture("partial")
        rocket.brokers[1].start()
        for page in pages.values():
            page.bring_to_front()
            page.wait_for_selector("body:not(:has(.away)) main footer.asked", timeout=REFRESH_LIMIT_MS)
        visitor.close()


def test_all_by_keyboard(visitor: Watched) -> None:
    page = visitor.page
    visitor.go("/")
    page.keyboard.press("g")
    page.keyboard.press("t")
    page.wait_for_url("**/topics")
    visitor.settled()
    page.keyboard.press("j")
    page.keyboard.press("j")
    expect(page.locator("tr.chosen")).to_have_count(1)
    page.keyboard.press("k")
    page.keyboard.press("Enter")
    page.wait_for_url("**/topics/*")
    visitor.settled()
    page.keyboard.press("/")
    page.keyboard.type("warehou")
    expect(page.locator("#found a")).to_contain_text("warehouse-cg")
    page.keyboard.press("Enter")
    page.wait_for_url("**/groups/warehouse-cg")
    visitor.settled()
    page.keyboard.press("?")
    expect(page.locator("#keys")).to_be_visible()
    visitor.picture("keys")
    page.keyboard.press("Escape")
    page.keyboard.press("g")
    page.keyboard.press("d")
    page.wait_for_url("**/dead")
    visitor.settled()
    visitor.back("warehouse-cg")
    page.keyboard.press("/")
    expect(page.locator("#found a").first).to_contain_text("warehouse-cg")  # what was opened last
    page.keyboard.press("Escape")
    visitor.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.keyboard.press("j")
    page.keyboard.press("c")
    expect(page.locator("#told")).to_have_text("copied")
    assert page.evaluate("navigator.clipboard.readText()") == "Orders"
    with page.expect_response("**/groups/warehouse-cg"):
        page.keyboard.press("r")


def test_a_page_of_another_origin_changes_nothing(browser: Browser, address: str, shop: Cluster) -> None:
    """The form of a stranger's page is sent by the browser with all it has, and is refused."""
    with served(shop.namesrv) as other:  # another port is another origin
        visitor = Watched(browser, address)
        visitor.go("/topics")
        page = visitor.page
        evil = EVIL.replace("TARGET", address)
        page.route(f"{other}/evil", lambda route: route.fulfill(content_type="text/html", body=evil))
        page.goto(f"{other}/evil")
        with page.expect_navigation():
            page.click("button")
        expect(page.locator("body")).to_contain_text("may change nothing here")
        visitor.context.close()
    with Admin(shop.namesrv) as admin:
        assert "Evil" not in admin.topics()


EVIL = """<form method=post action="TARGET/topics/create"><input name=name value=Evil><input name=queues value=1>
<input name=permission value=6><input name=token value=x><button>win a prize</button></form>"""


def test_hostile_names_keys_and_bodies_are_text_everywhere(visitor: Watched) -> None:
    page = visitor.page
    page.on("dialog", lambda dialog: visitor.complaints.append(f"a dialog: {dialog.message}"))
    visitor.go("/messages?topic=Orders&key=hostile&from=-1d")
    page.click("tbody a.id")
    visitor.settled()
    expect(page.locator("main")).to_contain_text("<script>alert(1)</script>")
    expect(page.locator("main")).to_contain_text("{{7*7}}")
    assert page.locator("main script, main img").count() == 0
    visitor.go("/topics?q=%3Cimg%20src%3Dx%20onerror%3Dalert(4)%3E")
    expect(page.locator(".empty")).to_contain_text("<img src=x")


@in_make_browser
@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("overview", "/"),
        ("messages", "/messages?topic=Orders&from=-1d"),
        ("groups", "/groups"),
        ("group", "/groups/warehouse-cg"),
        ("topics", "/topics"),
        ("topic", "/topics/Payments"),
        ("clients", "/clients"),
        ("delayed", "/delayed"),
        ("transactions", "/transactions"),
        ("access", "/access"),
        ("settings", "/settings"),
    ],
)
def test_every_page_is_calm_and_fits_the_screen_and_a_phone(visitor: Watched, name: str, path: str) -> None:
    visitor.go(path)
    page = visitor.page
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280
    if path in ("/", "/groups/warehouse-cg", "/topics/Payments"):
        expect(page.locator(".chart:not(:has(canvas))")).to_have_count(0, timeout=CHART_LIMIT_MS)
        charts_follow_the_scheme(page)
    if path == "/":
        page.wait_for_selector(".findings:not(:has(.waiting))")  # the doctor has looked
    if path == "/clients":
        expect(page.locator("main")).to_contain_text("billing-2")
    if path == "/transactions":
        expect(page.locator("main")).to_contain_text("bank-pg")
    if path == "/delayed":
        expect(page.locator("main")).to_contain_text("first is due")
    if path == "/settings":
        page.fill("form.sheet [name=key]", "flushDelayOffsetInterval")
        page.fill("form.sheet [name=value]", "12000")
        page.click("form.sheet button.primary")
        visitor.settled()
        expect(page.locator("#audit")).to_contain_text("12000")
        visitor.go(path)
    visitor.picture(name)
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


LIGHT_PIXELS = """() => [...document.querySelectorAll(".chart canvas")].reduce((sum, canvas) => {
  const bytes = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  for (let at = 0; at < bytes.length; at += 4) sum += Math.min(...bytes.slice(at, at + 4)) > 200;
  return sum;
}, 0)"""


def charts_follow_the_scheme(page: Page) -> None:
    """They are drawn again from what was told last, without asking: a grid for light is too bright for dark."""
    held: list[Route] = []
    page.route("**/history/**", lambda route: held.append(route))
    assert page.evaluate(LIGHT_PIXELS) > 0
    page.emulate_media(color_scheme="dark")
    # Asked again and again: a function that Chromium waits for would be evaluated there, which the policy forbids.
    wait_for(lambda: page.evaluate(LIGHT_PIXELS) == 0)
    page.emulate_media(color_scheme="light")
    for route in held:
        route.continue_()
    page.unroute("**/history/**")


@in_make_browser
def test_a_user_is_made_and_given_a_right_and_nobody_sees_a_secret(browser: Browser, guarded: Cluster) -> None:
    with served(guarded.namesrv, allows_changes=True) as url:
        visitor = Watched(browser, url)
        page = visitor.page
        page.goto(f"{url}/access")
        page.fill("[name=user]", "root")
        page.fill("[name=password]", "root-secret")
        page.click("button.primary")
        visitor.settled()
        page.fill("form[action='/access/users'] [name=name]", "warehouse")
        page.fill("form[action='/access/users'] [name=secret]", "a-long-secret")
        page.click("form[action='/access/users'] button")
        visitor.settled()
        page.fill("form[action='/access/grants'] [name=user]", "warehouse")
        page.fill("form[action='/access/grants'] [name=actions]", "Pub,Sub")
        page.fill("form[action='/access/grants'] [name=resource]", "Topic:Orders")
        page.click("form[action='/access/grants'] button")
        visitor.settled()
        expect(page.locator("tr", has_text="Topic:Orders")).to_contain_text("Allow")
        assert "a-long-secret" not in page.content()
        assert page.evaluate("document.documentElement.scrollWidth") <= 1280
        visitor.picture("access")
        visitor.close()
