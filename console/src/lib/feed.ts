// Where the rows of a view come from: a page, a live tail, or a search.

import { useEffect, useRef, useState } from "preact/hooks";
import { call, Problem, request, useLive, v1, type Live } from "./api";
import { readLines } from "./lines";
import type { LogRecord, RecordsPage } from "./types";
import { pagePath, searchBody, tailPath, type View } from "./view";

/** Rows that a tail keeps. */
const KEPT = 200;
/** How often a tail shows what came, ms: an eye reads no faster. */
const PACE = 250;

export function usePage(topic: string, view: View): Live<RecordsPage> {
  return useLive<RecordsPage>(view.live || view.text ? null : pagePath(topic, view));
}

export interface Tail {
  rows: LogRecord[];
  /** Records that were passed over because more came than is shown. */
  skipped: number;
  /** Records a second, shown or not. */
  pace: number;
  paused: boolean;
  error?: string;
  pause: (on: boolean) => void;
}

/** The newest records as they come; paused, it goes on later where it was. */
export function useTail(topic: string, view: View): Tail {
  const [rows, setRows] = useState<LogRecord[]>([]);
  const [skipped, setSkipped] = useState(0);
  const [pace, setPace] = useState(0);
  const [paused, setPaused] = useState(false);
  const [error, setError] = useState<string>();
  const cursor = useRef("");
  const shape = view.live ? tailPath(topic, view, "") : "";
  useEffect(() => {
    cursor.current = "";
    setRows([]);
    setSkipped(0);
    setPaused(false);
  }, [shape]);
  useEffect(() => {
    if (!shape || paused) return;
    const fresh: LogRecord[] = [];
    let passed = 0;
    const seen: [number, number][] = [];
    let source: EventSource;
    let retry = 0;
    const open = () => {
      source = new EventSource(tailPath(topic, view, cursor.current));
      source.addEventListener("records", (event) => {
        const data = JSON.parse((event as MessageEvent<string>).data) as {
          records: LogRecord[];
          next: string;
          skipped: number;
        };
        cursor.current = data.next;
        fresh.push(...data.records);
        passed += data.skipped;
        seen.push([Date.now(), data.records.length + data.skipped]);
      });
      source.addEventListener("open", () => setError(undefined));
      source.addEventListener("failed", (event) => {
        const data = JSON.parse((event as MessageEvent<string>).data) as { detail?: string };
        setError(data.detail ?? "the stream ended");
      });
      source.addEventListener("error", () => {
        // The browser's own retry would ask from the old position; a new stream goes on where this one was.
        source.close();
        setError("The stream broke; it is opened again.");
        clearTimeout(retry);
        retry = window.setTimeout(open, 1500);
      });
    };
    open();
    const timer = setInterval(() => {
      const now = Date.now();
      while (seen[0] && seen[0][0] < now - 3000) seen.shift();
      setPace(seen.reduce((n, [, records]) => n + records, 0) / 3);
      if (fresh.length === 0 && passed === 0) return;
      const added = fresh.splice(0).slice(-KEPT).reverse();
      setRows((old) => [...added, ...old].slice(0, KEPT));
      setSkipped((n) => n + passed);
      passed = 0;
    }, PACE);
    return () => {
      source.close();
      clearTimeout(retry);
      clearInterval(timer);
      setPace(0);
      const added = fresh.splice(0).slice(-KEPT).reverse();
      if (added.length) setRows((old) => [...added, ...old].slice(0, KEPT));
    };
  }, [shape, paused]);
  return { rows, skipped, pace, paused, error, pause: setPaused };
}

interface Progress {
  scanned: number;
  /** Offsets that were looked at, of those that there are. */
  done: number;
  of: number;
  eta_ms?: number | null;
}

export interface Search {
  rows: LogRecord[];
  progress?: Progress;
  /** Why it ended: `complete`, `limit`, `budget`; `cancelled` by the reader. */
  ended?: string;
  error?: Problem;
  cancel: () => void;
  /** Goes on where the budget ended it. */
  more?: () => void;
}

/** A search on the server: hits as they are found, how far it is, and a way to end it. */
export function useSearch(topic: string, view: View): Search {
  const [rows, setRows] = useState<LogRecord[]>([]);
  const [progress, setProgress] = useState<Progress>();
  const [ended, setEnded] = useState<string>();
  const [error, setError] = useState<Problem>();
  const [cursor, setCursor] = useState<string>();
  const stop = useRef<AbortController>(null);
  const shape = !view.live && view.text ? JSON.stringify(searchBody(view)) : "";
  const run = async (from?: string) => {
    stop.current?.abort();
    const mine = new AbortController();
    stop.current = mine;
    if (!from) setRows([]);
    setProgress(undefined);
    setEnded(undefined);
    setError(undefined);
    setCursor(undefined);
    const body = { ...JSON.parse(shape), ...(from ? { cursor: from, from: undefined } : {}) };
    const fresh: LogRecord[] = [];
    let last = 0;
    const show = () => {
      last = Date.now();
      const added = fresh.splice(0);
      if (added.length) setRows((old) => [...old, ...added]);
    };
    try {
      const response = await request(v1(["topics", topic, "search"], { int64: "string" }), {
        method: "POST",
        body,
        signal: mine.signal,
        accept: "application/x-ndjson",
      });
      await readLines(response, (value) => {
        const line = value as { hit?: LogRecord; progress?: Progress; end?: Progress & { why: string; cursor: string }; error?: Problem };
        if (line.hit) fresh.push(line.hit);
        if (line.progress) setProgress(line.progress);
        if (line.error) setError(line.error);
        if (line.end) {
          setProgress(line.end);
          setEnded(line.end.why);
          setCursor(line.end.why === "complete" ? undefined : line.end.cursor);
        }
        if (Date.now() - last > PACE) show();
      });
      show();
    } catch (why) {
      if (mine.signal.aborted) return;
      setError(why instanceof Problem ? why : new Problem(0, "the search broke off", String(why)));
    }
  };
  useEffect(() => {
    if (!shape) return;
    run();
    return () => stop.current?.abort();
  }, [shape, topic]);
  return {
    rows: shape ? rows : [],
    progress,
    ended,
    error,
    cancel: () => {
      stop.current?.abort();
      setEnded("cancelled");
    },
    more: cursor ? () => void run(cursor) : undefined,
  };
}

/** One record by its place; null when it isn't there (any more). */
export async function fetchRecord(topic: string, at: string, signal: AbortSignal): Promise<LogRecord | null> {
  const [partition = "", offset = ""] = at.split(":");
  const path = v1(["topics", topic, "partitions", partition], { offset, limit: 1, int64: "string" });
  const page = await call<{ records: LogRecord[] }>(path, { signal });
  const record = page.records[0];
  return record && record.offset === offset ? { ...record, partition: Number(partition) } : null;
}
