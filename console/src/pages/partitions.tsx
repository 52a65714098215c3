// The partitions of a topic as a map (how large each is, and what is wrong), and as a table.

import { useState } from "preact/hooks";
import { call, v1 } from "../lib/api";
import { bytes, count, short } from "../lib/format";
import { useFrame } from "../lib/frame";
import { setQuery, to } from "../lib/router";
import type { Partition, Topic } from "../lib/types";
import { Share, State, Trouble, say } from "../ui/bits";
import { Dialog, useDoing } from "../ui/dialog";

const ROWS = 250;

function sick(p: Partition): string | undefined {
  if (p.failed) return p.failed;
  if (p.leader === null) return "no leader";
  if (p.isr.length < p.replicas.length) return `${p.replicas.length - p.isr.length} not in sync`;
  return undefined;
}

export function Partitions({ topic, query }: { topic: Topic; query: URLSearchParams }) {
  const { locked } = useFrame();
  const [adding, setAdding] = useState(false);
  const all = topic.partition_list;
  const most = Math.max(1, ...all.map((p) => p.size_bytes ?? 0));
  const mean = all.reduce((n, p) => n + (p.size_bytes ?? 0), 0) / Math.max(1, all.length);
  const bad = all.filter(sick).length;
  const only = query.get("only") === "sick";
  const shown = (only ? all.filter(sick) : all).slice(0, ROWS);
  return (
    <>
      <div class="bar">
        <p class="soft">
          {mean > 0 && `The largest holds ${(most / mean).toFixed(1)} times the mean. `}
          {bad === 0 ? "All are served and in sync." : `${bad} need a look.`}
        </p>
        <span class="push" />
        {bad > 0 && (
          <label class="check">
            <input type="checkbox" checked={only} onChange={(e) => setQuery({ only: e.currentTarget.checked ? "sick" : undefined })} />
            Only those
          </label>
        )}
        {!locked && !topic.internal && (
          <button type="button" class="small" onClick={() => setAdding(true)}>
            Add partitions
          </button>
        )}
      </div>
      {all.length > 1 && (
        <div class={`map ${all.length > 1000 ? "wide" : ""}`} role="group" aria-label="Partitions by size: the darker, the larger">
          {all.slice(0, 2000).map((p) => (
            <a
              key={p.partition}
              href={to(["topics", topic.name, "records"], { partition: String(p.partition) })}
              class={sick(p) ? "sick" : ""}
              style={{ "--heat": `${((p.size_bytes ?? 0) / most) * 100}` }}
              title={`Partition ${p.partition}: ${bytes(p.size_bytes)}${sick(p) ? `, ${sick(p)}` : ""}`}
              aria-label={`Partition ${p.partition}, ${bytes(p.size_bytes)}${sick(p) ? `, ${sick(p)}` : ""}`}
            >
              {p.partition}
            </a>
          ))}
        </div>
      )}
      <div class="sheet">
        <table>
          <thead>
            <tr>
              <th scope="col">Partition</th>
              <th scope="col">Replicas</th>
              <th scope="col">State</th>
              <th scope="col" class="num">Epoch</th>
              <th scope="col" class="num">First offset</th>
              <th scope="col" class="num">Last stable</th>
              <th scope="col" class="num">High watermark</th>
              <th scope="col" class="num">Records</th>
              <th scope="col" class="num">Size</th>
            </tr>
          </thead>
          <tbody>
            {shown.map((p) => (
              <tr key={p.partition}>
                <th scope="row"><a href={to(["topics", topic.name, "records"], { partition: String(p.partition) })}>{p.partition}</a></th>
                <td><Replicas partition={p} /></td>
                <td>{sick(p) ? <State mood="bad">{sick(p)}</State> : <State mood="good">in sync</State>}</td>
                <td class="num">{p.leader_epoch}</td>
                <td class="num">{count(p.log_start_offset)}</td>
                <td class="num">
                  {p.last_stable_offset !== p.high_watermark ? (
                    <span class="mark" title="A transaction is open: readers of committed records wait here">{count(p.last_stable_offset)}</span>
                  ) : (
                    <span class="dim">{count(p.last_stable_offset)}</span>
                  )}
                </td>
                <td class="num">{count(p.high_watermark)}</td>
                <td class="num">{short((p.high_watermark ?? 0) - (p.log_start_offset ?? 0))}</td>
                <td class="num"><Share value={p.size_bytes ?? 0} most={most}>{bytes(p.size_bytes)}</Share></td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {shown.length === ROWS && <p class="pages">The first {ROWS} are listed; the map leads to all.</p>}
      {adding && <AddPartitions topic={topic} onClose={() => setAdding(false)} />}
    </>
  );
}

/** The leader filled, those in sync with a line, the others dashed; the number is the broker's. */
function Replicas({ partition }: { partition: Partition }) {
  return (
    <span class="squares">
      {partition.replicas.map((id) => {
        const leads = id === partition.leader;
        const inSync = partition.isr.includes(id);
        const what = leads ? "leader" : inSync ? "in sync" : "not in sync";
        return (
          <span key={id} class={leads ? "leads" : inSync ? "" : "out-of-sync"} title={`Broker ${id}: ${what}`}>
            {id}
            <span class="out">{what}</span>
          </span>
        );
      })}
    </span>
  );
}

function AddPartitions({ topic, onClose }: { topic: Topic; onClose: () => void }) {
  const [wanted, setWanted] = useState(String(topic.partitions + 1));
  const [accepted, setAccepted] = useState(false);
  const [busy, error, run] = useDoing();
  const add = () =>
    run(async () => {
      await call(v1(["topics", topic.name, "partitions"]), {
        method: "POST",
        body: { count: Number(wanted), accept_key_reordering: accepted },
      });
      say(`${topic.name} has ${wanted} partitions`);
      onClose();
    });
  return (
    <Dialog title={`Add partitions to ${topic.name}`} onClose={onClose}>
      {error && <Trouble error={error} />}
      <div class="row">
        <label for="wanted">Partitions in all (now {topic.partitions}; it can't be undone)</label>
        <input id="wanted" type="number" min={topic.partitions + 1} value={wanted} onInput={(e) => setWanted(e.currentTarget.value)} />
      </div>
      <label class="check">
        <input type="checkbox" checked={accepted} onChange={(e) => setAccepted(e.currentTarget.checked)} />
        Most keys will move to another partition, and their new records won't be in order with the old ones. That is fine here.
      </label>
      <footer>
        <button type="button" onClick={onClose}>Cancel</button>
        <button type="button" class="main" disabled={!accepted || busy || Number(wanted) <= topic.partitions} onClick={add}>
          Add
        </button>
      </footer>
    </Dialog>
  );
}
