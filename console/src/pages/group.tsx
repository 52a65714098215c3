// One group: how far it is behind and where, who has which partition, and what happened to it.

import { useState } from "preact/hooks";
import { call, useLive, v1 } from "../lib/api";
import { ago, clock, count, duration, plural, short } from "../lib/format";
import { useFrame } from "../lib/frame";
import { go, setQuery, to } from "../lib/router";
import type { GroupDetail, GroupEvent, GroupHistory, GroupLag, LagRow } from "../lib/types";
import { Empty, Filter, Loaded, State, Trouble, Windows } from "../ui/bits";
import { Destroy } from "../ui/dialog";
import { Plot } from "../ui/plot";
import { GroupState } from "./groups";
import { Fact, WINDOWS } from "./overview";
import { Reset } from "./reset";

const TABS: [string, string][] = [
  ["lag", "Lag"],
  ["members", "Members"],
  ["timeline", "Timeline"],
];

const ROWS = 300;

export function Group({ name, tab, query }: { name: string; tab: string; query: URLSearchParams }) {
  const { locked } = useFrame();
  const [dialog, setDialog] = useState<"reset" | "delete">();
  const window = query.get("window") ?? "1h";
  const detail = useLive<GroupDetail>(v1(["groups", name]), 10_000);
  const lag = useLive<GroupLag>(v1(["groups", name, "lag"]), 5000);
  const history = useLive<GroupHistory>(v1(["history", "groups", name], { window }), 10_000);
  const rows = lag.data?.partitions ?? [];
  const total = lag.data?.total;
  const lost = rows.reduce((n, row) => n + row.lost, 0);
  const seconds = rows.reduce<number | null>((most, row) => (row.seconds === null ? most : Math.max(most ?? 0, row.seconds)), null);
  const loss = rows.reduce<number | null>((least, row) => {
    const s = row.time_to_loss;
    return s === null ? least : Math.min(least ?? s, s);
  }, null);
  const group = detail.data;
  return (
    <>
      <div class="head">
        <p class="crumb"><a href={to(["groups"])}>Groups</a></p>
        <h1 tabIndex={-1}>{name}</h1>
        {!locked && group && (
          <>
            <button type="button" onClick={() => setDialog("reset")}>Move offsets…</button>
            <button type="button" class="bare" onClick={() => setDialog("delete")}>Delete…</button>
          </>
        )}
      </div>
      {detail.error && <Trouble error={detail.error} stale={group !== undefined} />}
      <dl class="facts">
        <Fact label="State" text>{group ? <GroupState state={group.state} /> : "–"}</Fact>
        <Fact label="Members">{count(group?.members.length)}</Fact>
        <Fact label="Lag"><span title={count(total)}>{short(total)}</span> <small>records</small></Fact>
        <Fact label="Behind by">{seconds === null ? "–" : duration(seconds * 1000)}</Fact>
        {lost > 0 && (
          <Fact label="Lost to retention" text>
            <State mood="bad">{plural(lost, "record")}</State>
          </Fact>
        )}
        {loss !== null && (
          <Fact label="Retention overtakes it in" text>
            {loss < 3600 ? <State mood="bad">{duration(loss * 1000)}</State> : duration(loss * 1000)}
          </Fact>
        )}
        {group && <Fact label="Assignor" text>{group.protocol || "none"}</Fact>}
        {group && <Fact label="Generation">{count(group.generation)}</Fact>}
      </dl>
      <nav class="tabs" aria-label={`Views of ${name}`}>
        {TABS.map(([key, label]) => (
          <a key={key} href={to(["groups", name, key])} aria-current={key === tab ? "page" : undefined}><span data-label={label}>{label}</span></a>
        ))}
      </nav>
      {tab === "lag" ? (
        <>
          <section>
            <div class="bar">
              <h2>Lag over time</h2>
              <span class="push" />
              <Windows label="How far back" value={window} choices={WINDOWS} onValue={(w) => setQuery({ window: w })} />
            </div>
            <Plot title="Records that the group has yet to commit" history={history.data} format={(v) => short(Math.round(v))} lines={[{ name: "lag", label: "Lag", second: true }]} />
          </section>
          <section class="part">
            <header><h2>By partition</h2></header>
            <Loaded live={lag}>{(data) => <LagTable rows={data.partitions} query={query} />}</Loaded>
          </section>
        </>
      ) : tab === "members" ? (
        <Loaded live={detail}>{(data) => <Members group={data} rows={rows} />}</Loaded>
      ) : tab === "timeline" ? (
        <Loaded live={history}>{(data) => <Timeline events={data.events} />}</Loaded>
      ) : (
        <Empty title="There is no such view" />
      )}
      {dialog === "reset" && group && (
        <Reset
          group={name}
          active={group.members.length > 0}
          topics={[...new Set(rows.map((row) => row.topic))].sort()}
          onClose={() => setDialog(undefined)}
          onDone={() => {
            setDialog(undefined);
            lag.reload();
          }}
        />
      )}
      {dialog === "delete" && (
        <Destroy
          title={`Delete group ${name}`}
          name={name}
          verb="Delete the group"
          onClose={() => setDialog(undefined)}
          work={async () => {
            await call(v1(["groups", name]), { method: "DELETE" });
            go(to(["groups"]));
          }}
        >
          <p>
            Its committed offsets of {plural(rows.length, "partition")} will be gone. Consumers that use this name begin where{" "}
            <code>auto.offset.reset</code> says.
          </p>
          {group && group.members.length > 0 && <p>It has {plural(group.members.length, "member")}: stop them first, or the broker refuses.</p>}
        </Destroy>
      )}
    </>
  );
}

function LagTable({ rows, query }: { rows: LagRow[]; query: URLSearchParams }) {
  const filter = query.get("q") ?? "";
  const sort = query.get("sort") ?? "lag";
  const fits = rows
    .filter((row) => `${row.topic}-${row.partition}`.includes(filter))
    .sort((a, b) => (sort === "lag" ? waiting(b) - waiting(a) : 0) || a.topic.localeCompare(b.topic) || a.partition - b.partition);
  const shown = fits.slice(0, ROWS);
  if (rows.length === 0) return <Empty title="Nothing is committed or assigned" />;
  const several = new Set(rows.map((row) => row.topic)).size > 1;
  return (
    <>
      {rows.length > 12 && (
        <div class="bar">
          <Filter value={filter} label="Filter by topic and partition" onValue={(q) => setQuery({ q })} />
        </div>
      )}
      <div class="sheet">
        <table>
          <thead>
            <tr>
              <th scope="col" aria-sort={sort === "place" ? "ascending" : undefined}>
                <button type="button" onClick={() => setQuery({ sort: "place" })}>{several ? "Topic and partition" : "Partition"}</button>
              </th>
              <th scope="col">Read</th>
              <th scope="col" class="num">Committed</th>
              <th scope="col" class="num">End</th>
              <th scope="col" class="num" aria-sort={sort === "lag" ? "descending" : undefined}>
                <button type="button" onClick={() => setQuery({ sort: undefined })}>Lag</button>
              </th>
              <th scope="col" class="num">Behind by</th>
              <th scope="col">Member</th>
            </tr>
          </thead>
          <tbody>
            {shown.map((row) => (
              <tr key={`${row.topic}-${row.partition}`}>
                <th scope="row">
                  <a
                    href={to(["topics", row.topic, "records"], {
                      partition: String(row.partition),
                      from: row.committed === null ? undefined : String(row.committed),
                    })}
                    title="The records that it reads next"
                  >
                    {row.topic}-{row.partition}
                  </a>
                </th>
                <td><Reach row={row} /></td>
                <td class="num">{row.committed === null ? <span class="dim">nothing yet</span> : count(row.committed)}</td>
                <td class="num">{count(row.high_watermark)}</td>
                <td class="num">{row.lag === null ? <span class="dim">–</span> : count(row.lag)}</td>
                <td class="num">{row.seconds === null ? <span class="dim">–</span> : row.seconds === 0 ? <span class="dim">0</span> : duration(row.seconds * 1000)}</td>
                <td class="mono">{row.member ?? <span class="dim">nobody</span>}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {fits.length > ROWS && <p class="pages">The first {ROWS} of {count(fits.length)}; the filter finds the others.</p>}
    </>
  );
}

/** Records that wait; all of them where nothing is committed. */
function waiting(row: LagRow): number {
  return row.lag ?? (row.high_watermark ?? 0) - (row.log_start_offset ?? 0);
}

/** How much of what the partition holds has been read. */
function Reach({ row }: { row: LagRow }) {
  const start = row.log_start_offset ?? 0;
  const end = row.high_watermark ?? 0;
  const held = end - start;
  const read = Math.max(0, (row.committed ?? start) - start);
  const part = held > 0 ? Math.min(100, (read / held) * 100) : 100;
  return (
    <span class={`reach ${part < 100 ? "behind" : ""}`} role="img" aria-label={`${Math.round(part)} % read`} style={{ display: "block" }}>
      <span style={{ "--part": `${part}%` }} />
    </span>
  );
}

function Members({ group, rows }: { group: GroupDetail; rows: LagRow[] }) {
  if (group.members.length === 0) return <Empty title="Nobody is in the group">Its committed offsets stay until they expire.</Empty>;
  const lagOf = (member: string) => rows.filter((row) => row.member === member).reduce((n, row) => n + (row.lag ?? 0), 0);
  return (
    <div class="sheet">
      <table>
        <thead>
          <tr>
            <th scope="col">Member</th>
            <th scope="col">Client</th>
            <th scope="col">Host</th>
            <th scope="col">Has</th>
            <th scope="col" class="num">Partitions</th>
            <th scope="col" class="num">Lag</th>
          </tr>
        </thead>
        <tbody>
          {group.members.map((member) => {
            const topics = new Map<string, number[]>();
            for (const { topic, partition } of member.assignment) topics.set(topic, [...(topics.get(topic) ?? []), partition]);
            return (
              <tr key={member.member_id}>
                <th scope="row" class="mono">
                  {member.member_id}
                  {member.instance_id && <span class="tag">{member.instance_id}</span>}
                </th>
                <td>{member.client_id}</td>
                <td class="mono">{member.host}</td>
                <td>
                  {[...topics].map(([topic, partitions]) => (
                    <div key={topic}>
                      <a href={to(["topics", topic])}>{topic}</a>{" "}
                      <span class="squares">
                        {partitions.sort((a, b) => a - b).slice(0, 40).map((p) => (
                          <span key={p}>{p}</span>
                        ))}
                      </span>
                      {partitions.length > 40 && ` and ${partitions.length - 40} more`}
                    </div>
                  ))}
                  {topics.size === 0 && <span class="dim">nothing</span>}
                </td>
                <td class="num">{count(member.assignment.length)}</td>
                <td class="num">{short(lagOf(member.member_id))}</td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </div>
  );
}

/** What a change was, in words. */
export function what(event: GroupEvent, before?: GroupEvent): string {
  const parts: string[] = [];
  const few = (list: string[]) => (list.length > 3 ? plural(list.length, "member") : list.join(", "));
  if (event.joined.length) parts.push(`${few(event.joined)} joined`);
  if (event.left.length) parts.push(`${few(event.left)} left`);
  if (parts.length === 0 && before && before.generation !== event.generation) parts.push("the assignment was made anew");
  if (parts.length === 0 && before && before.state !== event.state) parts.push(`was ${before.state}`);
  return parts.join("; ") || "first seen";
}

function Timeline({ events }: { events: GroupEvent[] }) {
  if (events.length === 0) return <Empty title="Nothing has changed so far" />;
  return (
    <ol class="timeline">
      {[...events].reverse().map((event, n, all) => (
        <li key={`${event.at}-${event.generation}`}>
          <time dateTime={new Date(event.at).toISOString()}>
            {clock(event.at).replace(/\.\d+$/, "")} <span class="soft">{ago(event.at)}</span>
          </time>
          <span>
            <GroupState state={event.state} /> <span class="soft">generation {event.generation}</span>
          </span>
          <span>
            {what(event, all[n + 1])} <span class="soft">· {plural(event.members, "member")}</span>
          </span>
        </li>
      ))}
    </ol>
  );
}
