// Looks at every page in a real browser, light and dark, on a broker with data: what is shown, what the keyboard does, what axe finds, and
// that nothing is asked of anybody else. `node browser/run.mjs BINARY FOLDER`; screenshots are left in browser/shots. How long something took
// is told and decides nothing: it says more about the machine. TOPICS is how many topics the last list has.

import assert from "node:assert/strict";
import { mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { chromium } from "playwright-core";
import { fill, orders, post, sleep, start } from "./broker.mjs";

const [binary, folder] = process.argv.slice(2);
assert(binary && folder, "usage: run.mjs BINARY FOLDER");
const shots = new URL("./shots/", import.meta.url).pathname;
mkdirSync(shots, { recursive: true });
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

let passed = 0;
const failures = [];

async function check(name, work) {
  try {
    await work();
    passed += 1;
    console.log(`ok   ${name}`);
  } catch (error) {
    failures.push(name);
    console.log(`FAIL ${name}\n     ${String(error?.stack ?? error).split("\n").slice(0, 6).join("\n     ")}`);
  }
}

// A member lives as long as the run.
const broker = await start(binary, folder, ["group.consumer.max.session.timeout.ms=1800000", "group.consumer.session.timeout.ms=1800000"]);
const browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args: ["--no-sandbox"] });
const complaints = [];

async function open(scheme, width = 1360) {
  const context = await browser.newContext({ viewport: { width, height: 900 }, colorScheme: scheme, reducedMotion: "reduce" });
  const page = await context.newPage();
  page.setDefaultTimeout(20_000);
  page.on("console", (message) => {
    if (message.type() === "error" && !/status of (4|5)\d\d/.test(message.text())) complaints.push(message.text());
  });
  page.on("pageerror", (error) => complaints.push(String(error)));
  page.on("request", (request) => {
    if (!request.url().startsWith(broker.base) && !/^(blob|data):/.test(request.url())) complaints.push(`asked ${request.url()}`);
  });
  return page;
}

const visit = (page, path) => page.goto(`${broker.base}/console/${path}`);

/** Asks again and again until the answer is true. */
async function until(what, ask, seconds = 90) {
  for (let n = 0; n < seconds * 5; n += 1) {
    if (await ask()) return;
    await sleep(200);
  }
  throw new Error(`${what}: not within ${seconds} s`);
}

async function clean(page, what) {
  await page.evaluate(axe);
  const found = await page.evaluate(() => globalThis.axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"] }));
  const told = found.violations.map((v) => `${v.id}: ${v.nodes.map((n) => n.target.join(" ")).slice(0, 3).join(" | ")}`);
  assert.deepEqual(told, [], `axe on ${what}`);
}

/** A stream of records as fast as asked, until it is ended. */
function load(perSecond) {
  let going = true;
  let sent = 0;
  const begin = Date.now();
  const done = (async () => {
    while (going) {
      const owed = Math.floor(((Date.now() - begin) / 1000) * perSecond) - sent;
      if (owed > 0) {
        await post(broker.base, "/v1/topics/orders/records", { records: orders(sent, Math.min(owed, 500)) });
        sent += Math.min(owed, 500);
      }
      await sleep(50);
    }
  })();
  return async () => {
    going = false;
    await done;
    return sent / ((Date.now() - begin) / 1000);
  };
}

const PAGES = [
  ["overview", "", "Busiest topics"],
  ["topics", "topics", "payments.settled"],
  ["records", "topics/orders", "order-"],
  ["record", "topics/orders?partition=0&from=start&at=0:0", "In a terminal"],
  ["partitions", "topics/clickstream.web/partitions", "High watermark"],
  ["topic-groups", "topics/orders/groups", "order-projector"],
  ["config", "topics/payments.settled/config", "retention.ms"],
  ["groups", "groups", "billing"],
  ["group", "groups/order-projector", "By partition"],
  ["members", "groups/warehouse/members", "http"],
  ["timeline", "groups/order-projector/timeline", "generation"],
  ["transactions", "transactions", "billing-writer-0"],
  ["brokers", "brokers", "serving"],
  ["broker", "brokers/1", "log.retention"],
  ["missing", "nowhere", "no such page"],
];

try {
  await fill(broker.base);
  const light = await open("light");

  await check("the first page says that all is well, and comes from the root", async () => {
    await light.goto(broker.base);
    // The disk that this runs on may be nearly full, and then it says so.
    await light.getByText("All is well.").or(light.getByText("the disk has")).first().waitFor();
    assert.match(light.url(), /\/console\/$/);
  });

  const end = load(200);
  // A few looks, so that there are rates, and an eye sees the plots.
  await until("rates of the node", async () => {
    const { series } = await fetch(`${broker.base}/v1/history/node?window=15m`).then((r) => r.json());
    return series.records_in?.filter((v) => v !== null).length >= 3;
  });
  await end();

  for (const scheme of ["light", "dark"]) {
    const page = scheme === "light" ? light : await open("dark");
    for (const [name, path, text] of PAGES) {
      await check(`${name}, ${scheme}`, async () => {
        await visit(page, path);
        await page.getByText(text).first().waitFor();
        await until("everything has its answer", () => page.evaluate(() => !document.querySelector("main [aria-busy=true]")));
        await page.screenshot({ path: `${shots}${name}-${scheme}.png` });
        await clean(page, name);
      });
    }
  }
  const narrow = await open("light", 420);
  for (const [name, path, text] of PAGES.slice(0, 4)) {
    await check(`${name}, narrow`, async () => {
      await visit(narrow, path);
      await narrow.getByText(text).first().waitFor();
      await narrow.screenshot({ path: `${shots}${name}-narrow.png` });
      const wide = await narrow.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      assert(wide <= 0, `the page is ${wide} px wider than the window`);
    });
  }
  await narrow.context().close();

  await check("a record keeps every digit of its numbers", async () => {
    await visit(light, "topics/orders?from=start&partition=0");
    await light.locator("tbody .row").first().click();
    await light.locator(".detail pre").getByText("90071992547", { exact: false }).first().waitFor();
    const text = await light.locator(".detail pre").innerText();
    assert.match(text, /"id": 90071992547\d{5},/);
    assert.match(light.url(), /at=0%3A\d+/);
  });

  await check("a large value is shown in part until it is asked for", async () => {
    await visit(light, "topics/audit.log?from=start&at=0:120");
    await light.getByText("Show all").click();
    await light.getByText("row 3999").waitFor();
  });

  await check("the keyboard leads everywhere", async () => {
    await visit(light, "");
    await light.getByText("Busiest topics").waitFor();
    // The second key has a second: a machine that takes longer is asked again.
    await until("g t leads to the topics", async () => {
      await light.keyboard.press("g");
      await light.keyboard.press("t");
      return /\/topics$/.test(light.url());
    });
    await light.getByText("payments.settled").first().waitFor();
    await light.keyboard.press("/");
    await light.keyboard.type("click");
    await light.waitForURL(/q=click/);
    await light.getByRole("link", { name: "orders", exact: true }).waitFor({ state: "detached" });
    await light.keyboard.press("Escape");
    await light.keyboard.press("j");
    await light.keyboard.press("Enter");
    await light.waitForURL(/\/topics\/clickstream\.web/);
    await light.locator("tbody .row").first().waitFor();
    await light.keyboard.press("j");
    await light.keyboard.press("Enter");
    await light.locator(".detail").waitFor();
    await light.keyboard.press("Escape");
    await light.locator(".detail").waitFor({ state: "detached" });
    await light.keyboard.press("?");
    await light.getByRole("dialog").waitFor();
    await clean(light, "the list of keys");
    await light.keyboard.press("Escape");
  });

  await check("the live tail keeps up with a thousand records a second, pauses and goes on", async () => {
    await visit(light, "topics/orders");
    await light.getByRole("button", { name: "Live tail" }).click();
    await light.getByText("Listening").waitFor();
    const stop = load(1000);
    const row = light.locator("tbody .row");
    await row.nth(150).waitFor();
    const words = await light.locator(".progress").innerText();
    const slowest = await light.evaluate(async () => {
      const frames = [];
      let last = performance.now();
      for (let n = 0; n < 100; n += 1) {
        await new Promise(requestAnimationFrame);
        const now = performance.now();
        frames.push(now - last);
        last = now;
      }
      return frames.sort((a, b) => a - b)[90];
    });
    await light.screenshot({ path: `${shots}tail-light.png` });
    await light.locator("main h1").click();
    await light.keyboard.press("Space");
    await light.getByText("Paused", { exact: true }).first().waitFor();
    let first = "";
    await until("a paused tail stands still", async () => {
      const before = first;
      first = await row.first().innerText();
      await sleep(800);
      return before === first;
    });
    await light.keyboard.press("Space");
    await light.waitForFunction((before) => document.querySelector("tbody .row")?.textContent !== before, first);
    const pace = await stop();
    console.log(`     ${Math.round(pace)} records/s written; ${words.replaceAll("\n", " ")}; nine of ten frames within ${Math.round(slowest)} ms`);
    assert.match(words, /Live\s[\s\S]*records\/s/);
    await clean(light, "the tail");
  });

  await check("a tail shows only what fits its filter", async () => {
    await visit(light, "topics/emails.outbound?live=1&q=needle");
    await light.getByText("Listening").waitFor();
    await post(broker.base, "/v1/topics/emails.outbound/records", { records: [{ value: "hay" }, { value: "a needle" }] });
    await light.getByText("needle").first().waitFor();
    assert.equal(await light.locator("tbody .row").count(), 1);
  });

  await check("a search finds, and says that it is done", async () => {
    await visit(light, "topics/orders");
    await light.locator("tbody .row").first().waitFor();
    await light.keyboard.press("/");
    await light.keyboard.type('"c-104"');
    await light.getByText("Everything was looked at.").or(light.getByText("at the most that are shown")).first().waitFor();
    await light.locator("mark").first().waitFor();
    await light.screenshot({ path: `${shots}search-light.png` });
    await clean(light, "a search");
    await visit(light, "topics/orders?q=no-such-thing-anywhere");
    await light.getByText("Nothing fits").waitFor();
  });

  await check("a search can be cancelled", async () => {
    // Held on the way, so that there is something to cancel.
    let release;
    const cancelled = new Promise((resolve) => {
      release = resolve;
    });
    await light.route("**/search?*", async (route) => {
      await cancelled;
      await route.continue().catch(() => {});
    });
    await visit(light, "topics/orders?q=nothing-at-all");
    await light.getByRole("button", { name: "Cancel" }).click();
    await light.getByText("Cancelled.").waitFor();
    release();
    await light.unroute("**/search?*");
  });

  await check("a record is edited and sent again", async () => {
    await visit(light, "topics/emails.outbound?from=start&at=0:0&partition=0");
    await light.getByRole("button", { name: "Send again…" }).click();
    await light.getByRole("dialog").getByLabel("Value", { exact: true }).fill('{"edited":true}');
    await clean(light, "the form to publish");
    await light.screenshot({ path: `${shots}publish-light.png` });
    await light.getByRole("button", { name: "Publish", exact: true }).last().click();
    await light.getByText(/Stored at \d:\d+/).waitFor();
    const found = await fetch(`${broker.base}/v1/topics/emails.outbound/records?offset=-1`).then((r) => r.json());
    assert.equal(found.records[0].value, '{"edited":true}');
    assert.equal(found.records[0].headers.length, 2, "headers go along");
  });

  await check("a topic is made, configured, and deleted once its name is typed", async () => {
    await visit(light, "topics");
    await light.getByRole("button", { name: "New topic" }).click();
    await light.getByRole("dialog").getByLabel("Name").fill("of-the-day");
    await light.getByLabel("Partitions").fill("2");
    await light.getByRole("button", { name: "Make the topic" }).click();
    await light.waitForURL(/topics\/of-the-day/);
    await light.getByRole("link", { name: "Config" }).click();
    await light.getByRole("button", { name: "Change retention.ms", exact: true }).click();
    await light.getByLabel("Value").fill("7200000");
    await light.getByText("2 h").waitFor();
    await light.screenshot({ path: `${shots}change-light.png` });
    await clean(light, "the form of a config");
    await light.getByRole("dialog").getByRole("button", { name: "Change", exact: true }).click();
    await light.getByRole("heading", { name: "Set", exact: true }).waitFor();
    await light.getByRole("button", { name: "Delete…" }).click();
    const harm = light.getByRole("button", { name: "Delete the topic" });
    assert(await harm.isDisabled());
    await light.getByRole("dialog").getByRole("textbox").fill("of-the-day");
    await light.screenshot({ path: `${shots}delete-light.png` });
    await clean(light, "the question before a topic is deleted");
    await harm.click();
    await light.waitForURL(/topics$/);
    const gone = await fetch(`${broker.base}/v1/topics/of-the-day`);
    assert.equal(gone.status, 404);
  });

  await check("offsets move after a look at the plan and the typed name", async () => {
    await visit(light, "groups/billing");
    await light.getByRole("button", { name: "Move offsets…" }).click();
    await light.getByLabel("To", { exact: true }).selectOption("start");
    await light.getByRole("button", { name: "Show what would happen" }).click();
    await light.getByText("Moves by").waitFor();
    const move = light.getByRole("button", { name: /^Move \d+ offsets$/ });
    assert(await move.isDisabled());
    await light.getByRole("dialog").getByRole("textbox").fill("billing");
    await light.screenshot({ path: `${shots}reset-light.png` });
    await clean(light, "the plan of a reset");
    await move.click();
    await light.getByRole("dialog").waitFor({ state: "detached" });
    const lag = await fetch(`${broker.base}/v1/groups/billing/lag`).then((r) => r.json());
    assert.equal(lag.partitions[0].committed, 0);
  });

  await check("an answer that says no is shown where it was asked", async () => {
    await visit(light, "topics");
    await light.getByRole("button", { name: "New topic" }).click();
    await light.getByRole("dialog").getByLabel("Name").fill("not/a/name");
    await light.getByRole("button", { name: "Make the topic" }).click();
    await light.getByRole("dialog").getByRole("alert").waitFor();
  });

  await check("read-only takes every action away", async () => {
    await visit(light, "topics/orders");
    await light.getByRole("button", { name: "Read-only" }).click();
    await light.getByRole("button", { name: "Publish" }).waitFor({ state: "detached" });
    assert.equal(await light.getByRole("button", { name: "Delete…" }).count(), 0);
    await light.getByRole("button", { name: "Read-only" }).click();
    await light.getByRole("button", { name: "Publish" }).waitFor();
  });

  await check("the look is remembered", async () => {
    await light.getByRole("button", { name: "Dark" }).click();
    await light.reload();
    await light.getByRole("button", { name: "Light" }).waitFor();
    assert.equal(await light.evaluate(() => document.documentElement.dataset.theme), "dark");
    await light.getByRole("button", { name: "Light" }).click();
  });

  await check("no inline script runs", async () => {
    const ran = await light.evaluate(() => {
      const script = document.createElement("script");
      try {
        script.textContent = "globalThis.ran = true";
        document.head.append(script);
      } catch {
        return false;
      }
      return globalThis.ran === true;
    });
    assert.equal(ran, false);
    complaints.splice(0, complaints.length, ...complaints.filter((c) => !/TrustedScript|inline script|Content Security Policy/.test(c)));
  });

  const many = Number(process.env.TOPICS ?? 1000);
  await check(`${many} topics are a page and its neighbours`, async () => {
    const names = Array.from({ length: many }, (_, n) => `many-${String(n).padStart(5, "0")}`);
    for (let at = 0; at < names.length; at += 50) {
      await Promise.all(names.slice(at, at + 50).map((name) => post(broker.base, "/v1/topics", { name, partitions: 1 })));
    }
    const begin = Date.now();
    await visit(light, "topics?q=many");
    await light.getByText("many-00000").waitFor();
    console.log(`     the first page of ${many} topics after ${Date.now() - begin} ms`);
    await light.getByText(`of ${many.toLocaleString("en")} topics`).waitFor();
    await light.getByRole("button", { name: "Next" }).click();
    await light.getByText("many-00100").waitFor();
  });

  await check("nothing was asked of anybody else, and nothing went wrong unseen", async () => {
    assert.deepEqual(complaints, []);
  });
} finally {
  await browser.close();
  await broker.stop();
}
console.log(`\n${passed} passed, ${failures.length} failed`);
process.exitCode = failures.length ? 1 : 0;
