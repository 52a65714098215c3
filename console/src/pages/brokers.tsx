// Brokers: where they are and what they hold; one of them with its configuration and what it counts.

import { useLive, v1 } from "../lib/api";
import { bytes, count, percent } from "../lib/format";
import { useFrame } from "../lib/frame";
import { to } from "../lib/router";
import type { Broker, History } from "../lib/types";
import { Loaded, Windows } from "../ui/bits";
import { Plot } from "../ui/plot";
import { setQuery } from "../lib/router";
import { Configs } from "./config";
import { BrokerTable, Fact, WINDOWS } from "./overview";

export function Brokers({ id, query }: { id?: string; query: URLSearchParams }) {
  const brokers = useLive<{ brokers: Broker[] }>(v1(["brokers"]), 30_000);
  if (id !== undefined) return <One id={id} query={query} />;
  return (
    <>
      <div class="head">
        <h1 tabIndex={-1}>Brokers</h1>
      </div>
      <Loaded live={brokers}>{(data) => <BrokerTable brokers={data.brokers} />}</Loaded>
    </>
  );
}

function One({ id, query }: { id: string; query: URLSearchParams }) {
  const { stats } = useFrame();
  const window = query.get("window") ?? "1h";
  const history = useLive<History>(v1(["history", "node"], { window }), 10_000);
  const node = stats?.node ?? {};
  const disk = stats?.disk;
  return (
    <>
      <div class="head">
        <p class="crumb"><a href={to(["brokers"])}>Brokers</a></p>
        <h1 tabIndex={-1}>Broker {id}</h1>
      </div>
      <dl class="facts">
        <Fact label="Stored">{bytes(stats?.size_bytes)}</Fact>
        {disk && (
          <Fact label="Disk">
            {bytes(disk.free_bytes)} <small>free of {bytes(disk.total_bytes)}</small>
          </Fact>
        )}
        <Fact label="Write-ahead log">
          {percent(node.wal_used_bytes ?? 0, node.wal_capacity_bytes ?? 0)} <small>of {bytes(node.wal_capacity_bytes)}</small>
        </Fact>
        <Fact label="Waiting fetches">{count(node.parked)}</Fact>
        <Fact label="Reads from files">{percent(node.cold_fetches_total ?? 0, node.fetch_requests_total ?? 0)}</Fact>
      </dl>
      <section class="part">
        <header>
          <h2>Requests</h2>
          <span class="push" />
          <Windows label="How far back" value={window} choices={WINDOWS} onValue={(w) => setQuery({ window: w })} />
        </header>
        <div class="pair">
          <Plot title="Batches appended a second" history={history.data} format={(v) => count(Math.round(v))} lines={[{ name: "batches_in", label: "Batches in a second" }]} height={150} />
          <Plot title="Fetches a second" history={history.data} format={(v) => count(Math.round(v))} lines={[{ name: "fetches", label: "Fetches a second", second: true }]} height={150} />
        </div>
      </section>
      <section class="part">
        <header><h2>Group commit of the write-ahead log</h2></header>
        <Plot title="Mean time of a group commit" history={history.data} format={(v) => `${v.toFixed(1)} ms`} lines={[{ name: "flush_ms", label: "Mean time" }]} height={150} />
      </section>
      <section class="part">
        <header><h2>Configuration</h2></header>
        <Configs path={["brokers", id, "config"]} of={`broker ${id}`} own="broker" query={query} />
      </section>
    </>
  );
}
