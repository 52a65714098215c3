// One topic: its records, its partitions, who reads it, how it is configured.

import { useState } from "preact/hooks";
import { call, useLive, v1 } from "../lib/api";
import { bytes, count, plural, short } from "../lib/format";
import { useFrame } from "../lib/frame";
import { go, to } from "../lib/router";
import type { GroupsPage, Topic as TopicDetail } from "../lib/types";
import { Empty, Loaded, Trouble } from "../ui/bits";
import { Destroy } from "../ui/dialog";
import { Spark } from "../ui/plot";
import { Configs } from "./config";
import { GroupState } from "./groups";
import { Partitions } from "./partitions";
import { Records } from "./records";

const TABS: [string, string][] = [
  ["records", "Records"],
  ["partitions", "Partitions"],
  ["groups", "Groups"],
  ["config", "Config"],
];

export function Topic({ name, tab, query }: { name: string; tab: string; query: URLSearchParams }) {
  const { locked } = useFrame();
  const live = useLive<TopicDetail>(v1(["topics", name]), 10_000);
  const [deleting, setDeleting] = useState(false);
  const topic = live.data;
  const records = topic?.partition_list.reduce((n, p) => n + (p.high_watermark ?? 0) - (p.log_start_offset ?? 0), 0);
  return (
    <>
      <div class="head">
        <p class="crumb">
          <a href={to(["topics"])}>Topics</a>
        </p>
        <h1 tabIndex={-1}>
          {name}
          {topic?.internal && <span class="tag">internal</span>}
        </h1>
        {!locked && topic && !topic.internal && (
          <button type="button" class="bare" onClick={() => setDeleting(true)}>
            Delete…
          </button>
        )}
      </div>
      {topic && (
        <p class="lead">
          {short(records)} records in {plural(topic.partitions, "partition")}, {bytes(topic.size_bytes)}
          {topic.replication_factor > 1 && `, ${topic.replication_factor} replicas`}
        </p>
      )}
      <nav class="tabs" aria-label={`Views of ${name}`}>
        {TABS.map(([key, label]) => (
          <a key={key} href={to(["topics", name, key])} aria-current={key === tab ? "page" : undefined}>
            <span data-label={label}>{label}</span>
            {key === "partitions" && topic && <small>{count(topic.partitions)}</small>}
          </a>
        ))}
      </nav>
      {live.error && topic && <Trouble error={live.error} stale />}
      {live.error && !topic ? (
        <Trouble error={live.error} />
      ) : tab === "records" ? (
        <Records topic={name} partitions={topic?.partitions} query={query} />
      ) : tab === "partitions" ? (
        <Loaded live={live}>{(data) => <Partitions topic={data} query={query} />}</Loaded>
      ) : tab === "groups" ? (
        <Readers topic={name} />
      ) : tab === "config" ? (
        <Configs path={["topics", name, "config"]} of={`topic ${name}`} own="topic" query={query} />
      ) : (
        <Empty title="There is no such view" />
      )}
      {deleting && topic && (
        <Destroy
          title={`Delete topic ${name}`}
          name={name}
          verb="Delete the topic"
          onClose={() => setDeleting(false)}
          work={async () => {
            await call(v1(["topics", name]), { method: "DELETE" });
            go(to(["topics"]));
          }}
        >
          <p>
            {count(records)} records in {plural(topic.partitions, "partition")} will be gone for good. Groups keep their
            committed offsets until these expire.
          </p>
        </Destroy>
      )}
    </>
  );
}

function Readers({ topic }: { topic: string }) {
  const live = useLive<GroupsPage>(v1(["stats", "groups"], { topic, sort: "lag", limit: 500 }), 10_000);
  return (
    <Loaded live={live}>
      {(page) =>
        page.groups.length === 0 ? (
          <Empty title="No group has committed offsets of this topic" />
        ) : (
          <div class="sheet">
            <table>
              <thead>
                <tr>
                  <th scope="col">Group</th>
                  <th scope="col">State</th>
                  <th scope="col" class="num">Members</th>
                  <th scope="col" class="num">Last minutes</th>
                  <th scope="col" class="num">Lag here</th>
                </tr>
              </thead>
              <tbody>
                {page.groups.map((group) => (
                  <tr key={group.group}>
                    <th scope="row"><a href={to(["groups", group.group])}>{group.group}</a></th>
                    <td><GroupState state={group.state} /></td>
                    <td class="num">{count(group.members)}</td>
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
  );
}
