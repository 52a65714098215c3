// How it goes, in one sentence and why; then what flows, and who is behind.

import type { ComponentChildren } from "preact";
import { useLive, v1 } from "../lib/api";
import { bytes, count, percent, plural, rate, short } from "../lib/format";
import { useFrame } from "../lib/frame";
import { setQuery, to } from "../lib/router";
import type { Broker, GroupsPage, History, Ready, TopicsPage } from "../lib/types";
import { Empty, Loaded, Share, State, Trouble, Windows } from "../ui/bits";
import { Plot, Spark } from "../ui/plot";
import { GroupState } from "./groups";

export const WINDOWS: [string, string][] = [
  ["15m", "15 min"],
  ["1h", "1 h"],
  ["6h", "6 h"],
  ["24h", "24 h"],
];

/** `/readyz` says 503 with the same words when the node isn't ready; then the words come in the problem. */
function troubles(ready: { data?: Ready; error?: { detail: string; status: number } }): string[] {
  const body = ready.data;
  if (body) {
    return [
      ...body.reasons,
      ...body.findings.map((f) => `${f.topic ?? "?"}-${f.partition ?? "?"}: ${f.kind === "damage" ? "damaged bytes" : "can't be served"}: ${f.reason}`),
    ];
  }
  if (!ready.error) return [];
  try {
    return (JSON.parse(ready.error.detail) as Ready).reasons;
  } catch {
    return [ready.error.detail || "The broker doesn't answer."];
  }
}

export function Overview({ query }: { query: URLSearchParams }) {
  const { cluster, stats } = useFrame();
  const window = query.get("window") ?? "15m";
  const ready = useLive<Ready>("/readyz?verbose", 10_000);
  const history = useLive<History>(v1(["history", "node"], { window }), 10_000);
  const topics = useLive<TopicsPage>(v1(["stats", "topics"], { sort: "rate", limit: 8 }), 10_000);
  const groups = useLive<GroupsPage>(v1(["stats", "groups"], { sort: "lag", limit: 8 }), 10_000);
  const brokers = useLive<{ brokers: Broker[] }>(v1(["brokers"]), 30_000);
  const reasons = troubles(ready);
  if (cluster?.offline_partitions) reasons.push(`${plural(cluster.offline_partitions, "partition has", "partitions have")} no leader`);
  if (cluster?.under_replicated_partitions) reasons.push(`${plural(cluster.under_replicated_partitions, "partition has", "partitions have")} replicas that aren't in sync`);
  const disk = stats?.disk;
  const used = disk && disk.total_bytes ? 1 - disk.free_bytes / disk.total_bytes : 0;
  if (disk && used > 0.95) reasons.push(`the disk has ${bytes(disk.free_bytes)} left of ${bytes(disk.total_bytes)}`);
  const last = (name: string) => history.data?.series[name]?.at(-1) ?? undefined;
  const known = ready.data !== undefined || ready.error !== undefined;
  return (
    <>
      <h1 class="out" tabIndex={-1}>
        Overview
      </h1>
      <p class="health" role="status">
        {!known ? (
          <span class="soft">Asking the broker…</span>
        ) : reasons.length === 0 ? (
          <>
            <State mood="good">All is well.</State>{" "}
            <span class="soft">
              {cluster && `${plural(cluster.topics, "topic")} with ${plural(cluster.partitions, "partition")} on ${plural(cluster.brokers, "broker")}`}
              {last("records_in") !== undefined && `, ${rate(last("records_in"))} records a second coming in`}.
            </span>
          </>
        ) : (
          <State mood="bad">{reasons.length === 1 ? "Something needs a look." : `${reasons.length} things need a look.`}</State>
        )}
      </p>
      {reasons.length > 0 && (
        <ul class="troubles">
          {reasons.slice(0, 8).map((reason) => (
            <li key={reason}>{reason}</li>
          ))}
          {reasons.length > 8 && <li>and {reasons.length - 8} more at /readyz?verbose</li>}
        </ul>
      )}
      <dl class="facts">
        <Fact label="Stored">{bytes(stats?.size_bytes)}</Fact>
        {disk && (
          <Fact label="Disk used">
            {percent(disk.total_bytes - disk.free_bytes, disk.total_bytes)} <small>{bytes(disk.free_bytes)} free</small>
          </Fact>
        )}
        <Fact label="Groups">{count(stats?.groups)}</Fact>
        <Fact label="Log in use">
          {stats ? percent(stats.node.wal_used_bytes ?? 0, stats.node.wal_capacity_bytes ?? 0) : "–"} <small>write-ahead</small>
        </Fact>
        <Fact label="Group commit">
          {last("flush_ms") === undefined ? "–" : `${(last("flush_ms") as number).toFixed(1)} ms`} <small>mean</small>
        </Fact>
      </dl>
      <section class="part">
        <header>
          <h2>Flow</h2>
          <span class="push" />
          <Windows label="How far back" value={window} choices={WINDOWS} onValue={(w) => setQuery({ window: w })} />
        </header>
        {history.error && <Trouble error={history.error} stale={history.data !== undefined} />}
        <Plot
          title="Bytes a second, in above the line and out below"
          history={history.data}
          height={210}
          format={(v) => `${bytes(v)}/s`}
          lines={[
            { name: "bytes_in", label: "In" },
            { name: "bytes_out", label: "Out", below: true, second: true },
          ]}
        />
      </section>
      <div class="pair">
        <section class="part">
          <header>
            <h2>Busiest topics</h2>
            <a class="linked push" href={to(["topics"], { sort: "rate" })}>
              All topics
            </a>
          </header>
          <Loaded live={topics}>
            {(page) =>
              page.topics.length === 0 ? (
                <Empty title="No topics yet">A first record makes one.</Empty>
              ) : (
                <div class="sheet">
                  <table>
                    <thead>
                      <tr>
                        <th scope="col">Topic</th>
                        <th scope="col" class="num">Records/s</th>
                        <th scope="col" class="num">Last minutes</th>
                        <th scope="col" class="num">Size</th>
                      </tr>
                    </thead>
                    <tbody>
                      {page.topics.map((topic) => (
                        <tr key={topic.name}>
                          <th scope="row"><a href={to(["topics", topic.name])}>{topic.name}</a></th>
                          <td class="num">{rate(topic.rate)}</td>
                          <td class="num"><Spark values={topic.trend} /></td>
                          <td class="num">
                            <Share value={topic.size_bytes} most={Math.max(...page.topics.map((t) => t.size_bytes))}>{bytes(topic.size_bytes)}</Share>
                          </td>
                        </tr>
                      ))}
                    </tbody>
                  </table>
                </div>
              )
            }
          </Loaded>
        </section>
        <section class="part">
          <header>
            <h2>Groups furthest behind</h2>
            <a class="linked push" href={to(["groups"], { sort: "lag" })}>
              All groups
            </a>
          </header>
          <Loaded live={groups}>
            {(page) =>
              page.groups.length === 0 ? (
                <Empty title="No groups yet">A consumer that commits makes one.</Empty>
              ) : (
                <div class="sheet">
                  <table>
                    <thead>
                      <tr>
                        <th scope="col">Group</th>
                        <th scope="col">State</th>
                        <th scope="col" class="num">Last minutes</th>
                        <th scope="col" class="num">Lag</th>
                      </tr>
                    </thead>
                    <tbody>
                      {page.groups.map((group) => (
                        <tr key={group.group}>
                          <th scope="row"><a href={to(["groups", group.group])}>{group.group}</a></th>
                          <td><GroupState state={group.state} /></td>
                          <td class="num"><Spark values={group.trend} lag /></td>
                          <td class="num" title={count(group.lag)}>{short(group.lag)}</td>
                        </tr>
                      ))}
                    </tbody>
                  </table>
                </div>
              )
            }
          </Loaded>
        </section>
      </div>
      <section class="part">
        <header>
          <h2>Brokers</h2>
        </header>
        <Loaded live={brokers}>{(data) => <BrokerTable brokers={data.brokers} />}</Loaded>
      </section>
    </>
  );
}

export function Fact({ label, children, text }: { label: string; children: ComponentChildren; text?: boolean }) {
  return (
    <div>
      <dt>{label}</dt>
      <dd class={text ? "text" : ""}>{children}</dd>
    </div>
  );
}

function BrokerState({ broker }: { broker: Broker }) {
  if (broker.fenced) return <State mood="bad">fenced</State>;
  // It serves on, and others lead what they can.
  if (broker.disk_ailing) return <State mood="bad">disk ailing</State>;
  return <State mood="good">serving</State>;
}

export function BrokerTable({ brokers }: { brokers: Broker[] }) {
  return (
    <div class="sheet">
      <table>
        <thead>
          <tr>
            <th scope="col">Broker</th>
            <th scope="col">State</th>
            <th scope="col">Address</th>
            <th scope="col">Rack</th>
            <th scope="col" class="num">Leads</th>
            <th scope="col" class="num">Replicas</th>
          </tr>
        </thead>
        <tbody>
          {brokers.map((broker) => (
            <tr key={broker.id}>
              <th scope="row"><a href={to(["brokers", String(broker.id)])}>{broker.id}</a></th>
              <td><BrokerState broker={broker} /></td>
              <td class="mono">{broker.listeners.map((l) => `${l.host}:${l.port}`).join(", ")}</td>
              <td>{broker.rack ?? <span class="dim">–</span>}</td>
              <td class="num">{count(broker.leaders)}</td>
              <td class="num">{count(broker.replicas)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
