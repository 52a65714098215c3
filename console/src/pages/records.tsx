// The records of a topic: a page of them, the live tail, or what a search finds; one of them open beside the list.

import { memo } from "preact/compat";
import { useEffect, useId, useMemo, useRef, useState } from "preact/hooks";
import { bytes, clock, count, duration, iso, percent, plural, rate } from "../lib/format";
import { fetchRecord, usePage, useSearch, useTail, type Search, type Tail } from "../lib/feed";
import { useFrame } from "../lib/frame";
import { line, ndjson, size, viewCommands } from "../lib/records";
import { setQuery } from "../lib/router";
import type { LogRecord, RecordsPage } from "../lib/types";
import { FIELDS, idOf, NEWEST, newestFirst, viewOf, type View } from "../lib/view";
import { Commands, Empty, Filter, Trouble } from "../ui/bits";
import { Dialog } from "../ui/dialog";
import { Produce, type Again } from "./produce";
import { Detail } from "./record";

export function Records({ topic, partitions, query }: { topic: string; partitions?: number; query: URLSearchParams }) {
  const view = viewOf(query);
  const { locked, kafka } = useFrame();
  const page = usePage(topic, view);
  const tail = useTail(topic, view);
  const search = useSearch(topic, view);
  const [producing, setProducing] = useState<Again>();
  const [sharing, setSharing] = useState(false);
  const paged = useMemo(() => {
    const rows = page.data?.records ?? [];
    return newestFirst(view) ? [...rows].reverse() : rows;
  }, [page.data, view.from, view.before]);
  const rows = view.live ? tail.rows : view.text ? search.rows : paged;
  const opened = useOpened(topic, view.at, rows);
  const where = { kafka, http: location.origin, topic };
  const close = () => setQuery({ at: undefined });

  useEffect(() => {
    const press = (event: KeyboardEvent) => {
      const busy = (event.target as Element | null)?.closest?.("input, textarea, select, button, a, dialog");
      if (event.key === "Escape" && view.at && !(event.target as Element | null)?.closest?.("dialog, input, textarea")) close();
      if (event.key === " " && view.live && (!busy || busy.classList.contains("row"))) {
        event.preventDefault();
        tail.pause(!tail.paused);
      }
    };
    document.addEventListener("keydown", press);
    return () => document.removeEventListener("keydown", press);
  }, [view.at, view.live, tail.paused]);

  const download = () => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([ndjson(rows)], { type: "application/x-ndjson" }));
    link.download = `${topic}.ndjson`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  };
  const moved = { after: undefined, before: undefined };
  return (
    <>
      <div class="bar">
        <Choice partitions={partitions} view={view} />
        {!view.live && <From view={view} />}
        <select aria-label="Where to look" value={view.field} onChange={(e) => setQuery({ in: e.currentTarget.value === "any" ? undefined : e.currentTarget.value, ...moved })}>
          {FIELDS.map(([key, label]) => (
            <option key={key} value={key}>{label}</option>
          ))}
        </select>
        <Filter
          value={view.text}
          label={view.field === "header" ? "name or name=value" : view.live ? "Filter what comes" : "Search the records"}
          onValue={(q) => setQuery({ q, ...moved })}
        />
        <span class="push" />
        <button
          type="button"
          aria-pressed={view.live}
          onClick={() => setQuery({ live: view.live ? undefined : "1", ...moved })}
        >
          {view.live ? "End the tail" : "Live tail"}
        </button>
        {!locked && (
          <button type="button" onClick={() => setProducing({ key: null, value: "", headers: [] })}>
            Publish
          </button>
        )}
        <button type="button" class="bare" onClick={() => setSharing(true)}>
          Copy as…
        </button>
        <button type="button" class="bare" disabled={rows.length === 0} onClick={download}>
          Download
        </button>
      </div>
      {view.live && <TailBar tail={tail} filtered={view.text !== ""} />}
      {!view.live && view.text && <SearchBar search={search} />}
      {!view.live && !view.text && page.error && <Trouble error={page.error} />}
      <div class={`records ${view.at ? "open" : ""}`}>
        <div class={`list ${old(rows) ? "old" : ""}`}>
          {rows.length > 0 ? (
            <List rows={rows} open={view.at} many={partitions !== 1} text={view.text} />
          ) : (
            <Nothing view={view} page={page.data} waiting={page.waiting} search={search} topic={topic} kafka={kafka} />
          )}
          {!view.live && !view.text && page.data && <Turn page={page.data} view={view} shown={rows.length} />}
        </div>
        {view.at && (
          <Detail
            key={view.at}
            at={view.at}
            record={opened.record}
            missing={opened.missing}
            where={where}
            onClose={close}
            onAgain={locked ? undefined : setProducing}
          />
        )}
      </div>
      {producing && (
        <Produce
          where={where}
          partitions={partitions ?? 1}
          from={producing}
          onClose={() => setProducing(undefined)}
          onDone={() => {
            setProducing(undefined);
            page.reload();
          }}
        />
      )}
      {sharing && (
        <Dialog title="This view in a terminal" onClose={() => setSharing(false)} wide>
          <Commands list={viewCommands(where, view.partition, view.live ? "end" : view.from)} />
          <p class="soft">The address of this page leads anybody who can reach the broker to the same records.</p>
        </Dialog>
      )}
    </>
  );
}

/** Whether some record is of another day, so that its date has to be shown. */
function old(rows: LogRecord[]): boolean {
  const today = new Date().toDateString();
  return rows.some((record) => new Date(Number(record.timestamp)).toDateString() !== today);
}

/** The open record: one of the rows, or fetched; it stays open when a tail has moved on. */
function useOpened(topic: string, at: string, rows: LogRecord[]): { record?: LogRecord; missing: boolean } {
  const [state, set] = useState<{ at: string; record?: LogRecord; missing: boolean }>({ at: "", missing: false });
  const listed = rows.find((record) => idOf(record) === at);
  useEffect(() => {
    if (listed) set({ at, record: listed, missing: false });
    if (!at || listed || state.at === at) return;
    const stop = new AbortController();
    fetchRecord(topic, at, stop.signal)
      .then((record) => set({ at, record: record ?? undefined, missing: record === null }))
      .catch(() => {
        if (!stop.signal.aborted) set({ at, missing: true });
      });
    return () => stop.abort();
  }, [topic, at, listed]);
  return state.at === at ? state : { missing: false };
}

function Choice({ partitions, view }: { partitions?: number; view: View }) {
  const choose = (value: string) => setQuery({ partition: value || undefined, after: undefined, before: undefined });
  if (partitions === 1) return null;
  if ((partitions ?? 0) > 300) {
    return (
      <input
        type="number"
        min="0"
        max={(partitions ?? 1) - 1}
        aria-label="Partition"
        placeholder="All partitions"
        value={view.partition}
        onChange={(e) => choose(e.currentTarget.value)}
      />
    );
  }
  return (
    <select aria-label="Partition" value={view.partition} onChange={(e) => choose(e.currentTarget.value)}>
      <option value="">All partitions</option>
      {Array.from({ length: partitions ?? Number(view.partition || -1) + 1 }, (_, n) => (
        <option key={n} value={String(n)}>Partition {n}</option>
      ))}
    </select>
  );
}

/** Where to begin: the newest, the start, an offset or a time. */
function From({ view }: { view: View }) {
  const kind = view.from.startsWith("-") ? "newest" : view.from === "start" ? "start" : view.from.startsWith("time:") ? "time" : "offset";
  const moved = { after: undefined, before: undefined };
  const local = () => {
    const ms = view.from.startsWith("time:") ? Date.parse(view.from.slice(5)) : Number.NaN;
    const d = new Date(Number.isNaN(ms) ? Date.now() - 3_600_000 : ms);
    return new Date(d.getTime() - d.getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
  };
  return (
    <>
      <select
        aria-label="From"
        value={kind}
        onChange={(event) => {
          const next = event.currentTarget.value;
          const from = next === "newest" ? undefined : next === "start" ? "start" : next === "offset" ? "0" : `time:${iso(Date.now() - 3_600_000)}`;
          setQuery({ from, ...moved });
        }}
      >
        <option value="newest">Newest</option>
        <option value="start">From the start</option>
        <option value="offset">From an offset</option>
        <option value="time">From a time</option>
      </select>
      {kind === "offset" && (
        <input
          class="mono"
          aria-label="Offset"
          inputMode="numeric"
          size={12}
          value={view.from}
          onChange={(e) => /^\d+$/.test(e.currentTarget.value) && setQuery({ from: e.currentTarget.value, ...moved })}
        />
      )}
      {kind === "time" && (
        <input
          type="datetime-local"
          step="1"
          aria-label="Time"
          value={local()}
          onChange={(e) => e.currentTarget.value && setQuery({ from: `time:${new Date(e.currentTarget.value).toISOString()}`, ...moved })}
        />
      )}
    </>
  );
}

function TailBar({ tail, filtered }: { tail: Tail; filtered: boolean }) {
  // A live region that changed four times a second would never stop talking.
  const [said, setSaid] = useState("");
  const words = tail.paused ? "Paused" : `${rate(tail.pace)} records a second`;
  const latest = useRef(words);
  latest.current = words;
  useEffect(() => {
    const timer = setInterval(() => setSaid(latest.current), 10_000);
    return () => clearInterval(timer);
  }, []);
  return (
    <div class="progress">
      {tail.paused ? (
        <span class="state idle">Paused</span>
      ) : (
        <span class="state live">
          <svg viewBox="0 0 10 10" aria-hidden="true"><circle cx="5" cy="5" r="4" fill="currentColor" /></svg>
          Live
        </span>
      )}
      <span class="soft">
        {tail.paused ? "what comes meanwhile is shown once it goes on" : `${rate(tail.pace)} records/s${filtered ? " that fit" : ""}`}
        {tail.skipped > 0 && `, ${count(tail.skipped)} passed over`}
      </span>
      {tail.error && <span class="mark">{tail.error}</span>}
      <button type="button" class="small" onClick={() => tail.pause(!tail.paused)}>
        {tail.paused ? "Go on" : "Pause"} <kbd aria-hidden="true">Space</kbd>
      </button>
      <span class="out" role="status">{said}</span>
    </div>
  );
}

const ENDS: Record<string, string> = {
  complete: "Everything was looked at.",
  limit: "It ended at the most that are shown.",
  budget: "It ended because its time was over.",
  cancelled: "Cancelled.",
};

function SearchBar({ search }: { search: Search }) {
  const { progress, ended, error } = search;
  if (error) return <Trouble error={error} />;
  const part = progress && progress.of > 0 ? (progress.done / progress.of) * 100 : 0;
  return (
    <div class="progress">
      <span class="reach" role="progressbar" aria-label="Searched" aria-valuenow={Math.round(part)} aria-valuemin={0} aria-valuemax={100}>
        <span style={{ "--part": `${ended === "complete" ? 100 : part}%` }} />
      </span>
      <span class="soft">
        <b>{plural(search.rows.length, "hit")}</b> in {plural(progress?.scanned ?? 0, "record")}
        {progress && !ended && ` (${percent(progress.done, progress.of)}`}
        {progress && !ended && progress.eta_ms ? `, ${duration(progress.eta_ms)} left)` : progress && !ended ? ")" : ""}
      </span>
      <span class="soft" role="status">{ended ? ENDS[ended] : ""}</span>
      {!ended && (
        <button type="button" class="small" onClick={search.cancel}>Cancel</button>
      )}
      {search.more && (
        <button type="button" class="small" onClick={search.more}>Search on</button>
      )}
    </div>
  );
}

function List({ rows, open, many, text }: { rows: LogRecord[]; open: string; many: boolean; text: string }) {
  return (
    <table>
      <caption class="out">Records; Enter opens one</caption>
      <thead>
        <tr>
          <th scope="col" class="c-at num">{many ? "Partition : offset" : "Offset"}</th>
          <th scope="col" class="c-time">Time</th>
          <th scope="col" class="c-key">Key</th>
          <th scope="col">Value</th>
          <th scope="col" class="c-size num">Size</th>
        </tr>
      </thead>
      <tbody>
        {rows.map((record) => (
          <Row key={idOf(record)} record={record} open={open === idOf(record)} many={many} text={text} />
        ))}
      </tbody>
    </table>
  );
}

const Row = memo(function Row({ record, open, many, text }: { record: LogRecord; open: boolean; many: boolean; text: string }) {
  const id = idOf(record);
  const toggle = () => setQuery({ at: open ? undefined : id });
  return (
    <tr aria-selected={open} onClick={toggle}>
      <td class="num mono">
        <button
          type="button"
          class="row"
          aria-expanded={open}
          onClick={(event) => {
            event.stopPropagation();
            toggle();
          }}
        >
          {many && <span class="dim">{record.partition}:</span>}
          {record.offset}
        </button>
      </td>
      <td class="c-time" title={iso(Number(record.timestamp))}>{clock(Number(record.timestamp))}</td>
      <td class="mono">{record.key === null ? <span class="null">no key</span> : <Marked text={line(record.key)} mark={text} />}</td>
      <td class="mono">{record.value === null ? <span class="null">tombstone</span> : <Marked text={line(record.value)} mark={text} />}</td>
      <td class="num c-size dim">{bytes(size(record.value) + size(record.key))}</td>
    </tr>
  );
});

/** The text, with what was looked for marked where it first stands. */
function Marked({ text, mark }: { text: string; mark: string }) {
  const at = mark ? text.indexOf(mark) : -1;
  if (at < 0) return <>{text}</>;
  return (
    <>
      {text.slice(0, at)}
      <mark>{mark}</mark>
      {text.slice(at + mark.length)}
    </>
  );
}

function Turn({ page, view, shown }: { page: RecordsPage; view: View; shown: number }) {
  if (page.at_start && page.at_end) return shown > 12 ? <p class="pages">That is all there is.</p> : null;
  const older = (
    <button type="button" class="small" disabled={page.at_start} onClick={() => setQuery({ before: page.first, after: undefined, at: undefined }, false)}>
      Older
    </button>
  );
  const newer = (
    <button type="button" class="small" disabled={page.at_end} onClick={() => setQuery({ after: page.next, before: undefined, at: undefined }, false)}>
      Newer
    </button>
  );
  const down = newestFirst(view);
  return (
    <nav class="pages" aria-label="Pages of records">
      <span>{down ? "Newest first" : "Oldest first"}</span>
      <span class="push" />
      {(view.cursor || view.from !== NEWEST) && (
        <button type="button" class="small bare" onClick={() => setQuery({ before: undefined, after: undefined, from: undefined, at: undefined }, false)}>
          Newest
        </button>
      )}
      {down ? newer : older}
      {down ? older : newer}
    </nav>
  );
}

function Nothing({
  view,
  page,
  waiting,
  search,
  topic,
  kafka,
}: {
  view: View;
  page?: RecordsPage;
  waiting: boolean;
  search: Search;
  topic: string;
  kafka: string;
}) {
  const id = useId();
  if (view.live) return <Empty title="Listening">New records appear here as they are written.</Empty>;
  if (view.text) return search.ended ? <Empty title="Nothing fits" /> : <div class="wait" aria-busy={!search.error} />;
  if (waiting || !page) return <div class="wait" aria-busy="true" key={id} />;
  if (!page.at_start) return <Empty title="Nothing here">Older records are before it.</Empty>;
  return (
    <Empty title="No records yet">
      <p>Publish one here, or from a terminal:</p>
      <code>{`echo hello | kcat -b ${kafka} -P -t ${topic}`}</code>
    </Empty>
  );
}
