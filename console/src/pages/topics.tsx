// All topics: filtered, ordered and paged by the server, so that ten thousand of them are as quick as ten.

import { useState } from "preact/hooks";
import { call, useLive, v1 } from "../lib/api";
import { bytes, count, duration, rate, short } from "../lib/format";
import { useFrame } from "../lib/frame";
import { go, setQuery, to } from "../lib/router";
import type { TopicsPage } from "../lib/types";
import { Empty, Filter, Loaded, Share, Trouble } from "../ui/bits";
import { Dialog, useDoing } from "../ui/dialog";
import { Spark } from "../ui/plot";
import { PAGE, Pages, Sorted } from "../ui/table";

export function Topics({ query }: { query: URLSearchParams }) {
  const { locked, kafka } = useFrame();
  const [making, setMaking] = useState(false);
  const sort = query.get("sort") ?? "name";
  const filter = query.get("q") ?? "";
  const internal = query.get("internal") ?? "";
  const page = Number(query.get("page") ?? 0) || 0;
  const path = v1(["stats", "topics"], { sort, filter, internal, page: page || undefined, limit: PAGE });
  const live = useLive<TopicsPage>(path, 10_000);
  return (
    <>
      <div class="head">
        <h1 tabIndex={-1}>Topics</h1>
        {!locked && (
          <button type="button" onClick={() => setMaking(true)}>
            New topic
          </button>
        )}
      </div>
      <div class="bar">
        <Filter value={filter} label="Filter by name" onValue={(q) => setQuery({ q, page: undefined })} />
        <label class="check">
          <input type="checkbox" checked={internal === "true"} onChange={(e) => setQuery({ internal: e.currentTarget.checked ? "true" : undefined, page: undefined })} />
          Internal topics
        </label>
      </div>
      <Loaded live={live}>
        {(data) => {
          if (data.topics.length === 0) {
            return filter ? (
              <Empty title={`No topic's name holds “${filter}”`} />
            ) : (
              <Empty title="No topics yet">
                <p>Make one here, or from a terminal:</p>
                <code>{`riverlog topic create orders -b ${kafka}\necho hello | kcat -b ${kafka} -P -t orders`}</code>
              </Empty>
            );
          }
          const most = Math.max(...data.topics.map((t) => t.size_bytes));
          const replicated = data.topics.some((t) => t.replication_factor > 1);
          return (
            <>
              <div class="sheet">
                <table>
                  <thead>
                    <tr>
                      <Sorted name="name" now={sort} ascending>Topic</Sorted>
                      <Sorted name="partitions" now={sort} num>Partitions</Sorted>
                      {replicated && <th scope="col" class="num">Replicas</th>}
                      <Sorted name="records" now={sort} num>Records</Sorted>
                      <Sorted name="rate" now={sort} num>Records/s</Sorted>
                      <th scope="col" class="num">Last minutes</th>
                      <th scope="col" class="num">Kept for</th>
                      <Sorted name="size" now={sort} num>Size</Sorted>
                    </tr>
                  </thead>
                  <tbody>
                    {data.topics.map((topic) => (
                      <tr key={topic.name}>
                        <th scope="row">
                          <a href={to(["topics", topic.name])}>{topic.name}</a>
                          {topic.internal && <span class="tag">internal</span>}
                          {topic.compacted && <span class="tag">compacted</span>}
                        </th>
                        <td class="num">
                          {count(topic.partitions)}
                          {topic.offline > 0 && <span class="mark"> {topic.offline} offline</span>}
                        </td>
                        {replicated && (
                          <td class="num">
                            {topic.replication_factor}
                            {topic.under_replicated > 0 && <span class="mark"> {topic.under_replicated} behind</span>}
                          </td>
                        )}
                        <td class="num" title={count(topic.records)}>{short(topic.records)}</td>
                        <td class="num">{rate(topic.rate)}</td>
                        <td class="num"><Spark values={topic.trend} /></td>
                        <td class="num">{topic.retention_ms === null ? <span class="dim">–</span> : duration(topic.retention_ms)}</td>
                        <td class="num" title={`${count(topic.size_bytes)} bytes`}>
                          <Share value={topic.size_bytes} most={most}>{bytes(topic.size_bytes)}</Share>
                        </td>
                      </tr>
                    ))}
                  </tbody>
                </table>
              </div>
              <Pages shown={data.topics.length} total={data.total} what="topics" page={page} />
            </>
          );
        }}
      </Loaded>
      {making && <NewTopic onClose={() => setMaking(false)} />}
    </>
  );
}

function NewTopic({ onClose }: { onClose: () => void }) {
  const [name, setName] = useState("");
  const [partitions, setPartitions] = useState("");
  const [retention, setRetention] = useState("");
  const [compact, setCompact] = useState(false);
  const [busy, error, run] = useDoing();
  const make = () =>
    run(async () => {
      const configs: Record<string, string> = {};
      if (retention) configs["retention.ms"] = retention;
      if (compact) configs["cleanup.policy"] = "compact";
      await call(v1(["topics"]), {
        method: "POST",
        body: { name, ...(partitions ? { partitions: Number(partitions) } : {}), configs },
      });
      onClose();
      go(to(["topics", name]));
    });
  return (
    <Dialog title="New topic" onClose={onClose}>
      {error && <Trouble error={error} />}
      <div class="row">
        <label for="new-name">Name</label>
        <input id="new-name" class="mono" value={name} autocomplete="off" spellcheck={false} maxLength={249} onInput={(e) => setName(e.currentTarget.value)} />
      </div>
      <div class="two">
        <div class="row">
          <label for="new-partitions">Partitions</label>
          <input id="new-partitions" type="number" min="1" placeholder="the broker's default" value={partitions} onInput={(e) => setPartitions(e.currentTarget.value)} />
        </div>
        <div class="row">
          <label for="new-retention">Kept for</label>
          <select id="new-retention" value={retention} onChange={(e) => setRetention(e.currentTarget.value)}>
            <option value="">the broker's default</option>
            <option value="3600000">1 hour</option>
            <option value="86400000">1 day</option>
            <option value="604800000">7 days</option>
            <option value="2592000000">30 days</option>
            <option value="-1">forever</option>
          </select>
        </div>
      </div>
      <label class="check">
        <input type="checkbox" checked={compact} onChange={(e) => setCompact(e.currentTarget.checked)} />
        Compacted: the newest record of each key stays
      </label>
      <footer>
        <button type="button" onClick={onClose}>Cancel</button>
        <button type="button" class="main" disabled={!name || busy} onClick={make}>
          Make the topic
        </button>
      </footer>
    </Dialog>
  );
}
