// A broker of its own for the browser run, with things in it to look at.

import { spawn } from "node:child_process";
import { createServer } from "node:net";

async function freePort() {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.on("error", reject);
    server.listen(0, "127.0.0.1", () => {
      const { port } = server.address();
      server.close(() => resolve(port));
    });
  });
}

export async function start(binary, folder, settings = []) {
  const [kafka, http] = [await freePort(), await freePort()];
  const args = ["serve", "--data", `${folder}/data`, "--listen", `127.0.0.1:${kafka}`, "--http", `127.0.0.1:${http}`];
  for (const setting of settings) args.push("--set", setting);
  const child = spawn(binary, args, { stdio: ["ignore", "ignore", "pipe"] });
  let log = "";
  child.stderr.on("data", (text) => {
    log += text;
  });
  const base = `http://127.0.0.1:${http}`;
  for (let n = 0; n < 300; n += 1) {
    if (child.exitCode !== null) throw new Error(`the broker ended: ${log}`);
    const ready = await fetch(`${base}/readyz`).then((r) => r.ok, () => false);
    if (ready) return { base, kafka: `127.0.0.1:${kafka}`, stop: () => stop(child), log: () => log };
    await sleep(100);
  }
  child.kill("SIGKILL");
  throw new Error(`the broker isn't ready after 30 s: ${log}`);
}

async function stop(child) {
  if (child.exitCode !== null) return;
  const ended = new Promise((resolve) => child.once("exit", resolve));
  child.kill("SIGTERM");
  const timer = setTimeout(() => child.kill("SIGKILL"), 10_000);
  await ended;
  clearTimeout(timer);
}

export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

export async function post(base, path, body, method = "POST", headers = {}) {
  const response = await fetch(base + path, {
    method,
    headers: { "Content-Type": "application/json", ...headers },
    body: JSON.stringify(body),
  });
  const text = await response.text();
  if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`);
  return text ? JSON.parse(text) : undefined;
}

/** An order that looks like one. `n` decides everything, so that each run shows the same. */
function order(n) {
  const status = ["paid", "pending", "shipped", "returned"][n % 4];
  const id = String(9007199254740993n + BigInt(n));
  return `{"id":${id},"customer":"c-${100 + (n % 17)}","total":${(10 + ((n * 37) % 400)).toFixed(2)},"currency":"EUR","status":"${status}","items":[{"sku":"A-${n % 50}","qty":${1 + (n % 3)}}]}`;
}

export function orders(from, count) {
  return Array.from({ length: count }, (_, k) => {
    const n = from + k;
    const value = n % 41 === 7 ? null : n % 29 === 5 ? { base64: Buffer.from([0, 255, 1, n % 256, 66, 105, 110]).toString("base64") } : order(n);
    return {
      key: n % 23 === 3 ? null : `order-${n % 500}`,
      value,
      headers: [
        { name: "trace-id", value: (0x4bf92f3577b3 + n).toString(16) },
        { name: "source", value: n % 2 ? "checkout" : "import" },
      ],
    };
  });
}

/** Topics, records, groups and an open transaction. */
export async function fill(base) {
  const topics = [
    ["orders", 6, {}],
    ["payments.settled", 3, { "retention.ms": 86_400_000 }],
    ["clickstream.web", 24, { "retention.ms": 3_600_000 }],
    ["customers", 4, { "cleanup.policy": "compact" }],
    ["audit.log", 1, { "retention.ms": -1 }],
    ["emails.outbound", 3, {}],
    ["invoices", 2, {}],
    ["empty", 1, {}],
  ];
  for (const [name, partitions, configs] of topics) await post(base, "/v1/topics", { name, partitions, configs });
  for (let from = 0; from < 3000; from += 500) await post(base, "/v1/topics/orders/records", { records: orders(from, 500) });
  for (const [name, count] of [["payments.settled", 800], ["clickstream.web", 2000], ["customers", 300], ["audit.log", 120], ["emails.outbound", 60]]) {
    await post(base, `/v1/topics/${name}/records`, { records: orders(0, count) });
  }
  const big = `{"rows":[${Array.from({ length: 4000 }, (_, n) => `{"n":${n},"text":"row ${n}"}`).join(",")}]}`;
  await post(base, "/v1/topics/audit.log/records", { records: [{ key: "big", value: big }] });
  const commit = (group, topic, partitions, offset) =>
    post(base, `/v1/groups/${group}/offsets`, { offsets: Array.from({ length: partitions }, (_, partition) => ({ topic, partition, offset: offset(partition) })) });
  await commit("order-projector", "orders", 6, (p) => 300 + p * 20);
  await commit("billing", "payments.settled", 3, () => 250);
  await commit("mailer", "emails.outbound", 3, () => 1);
  await post(base, "/v1/groups/warehouse/members", { topics: ["orders"] });
  const { producer_id, epoch } = await post(base, "/v1/transactions", { transactional_id: "billing-writer-0", timeout_ms: 900_000 });
  await post(base, "/v1/topics/invoices/partitions/0/records", { records: orders(0, 3) }, "POST", {
    "Riverlog-Transactional-Id": "billing-writer-0",
    "Riverlog-Producer-Id": String(producer_id),
    "Riverlog-Producer-Epoch": String(epoch),
    "Riverlog-Sequence": "0",
  });
}
