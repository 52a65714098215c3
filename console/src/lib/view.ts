// What of a topic's records is looked at: all of it is in the address.

import { v1 } from "./api";
import type { LogRecord } from "./types";

export type Field = "any" | "value" | "key" | "key_is" | "header";

export const FIELDS: [Field, string][] = [
  ["any", "Anywhere"],
  ["value", "Value holds"],
  ["key", "Key holds"],
  ["key_is", "Key is"],
  ["header", "Header"],
];

export interface View {
  /** One partition; empty for all. */
  partition: string;
  /** `-100`, `start`, an offset, `time:…`. */
  from: string;
  text: string;
  field: Field;
  live: boolean;
  /** The record that is open: `partition:offset`. */
  at: string;
  /** A page that was turned to: positions, and whether to read before them. */
  cursor: string;
  before: boolean;
}

export const NEWEST = "-100";
export const ROWS = 100;

export function viewOf(query: URLSearchParams): View {
  const field = query.get("in") ?? "any";
  return {
    partition: query.get("partition") ?? "",
    from: query.get("from") ?? NEWEST,
    text: query.get("q") ?? "",
    field: FIELDS.some(([name]) => name === field) ? (field as Field) : "any",
    live: query.get("live") === "1",
    at: query.get("at") ?? "",
    cursor: query.get("before") ?? query.get("after") ?? "",
    before: query.has("before"),
  };
}

const NAMES: Record<Field, string> = {
  any: "contains",
  value: "value_contains",
  key: "key_contains",
  key_is: "key_eq",
  header: "header",
};

/** What a record must have, as the server takes it. */
export function where(view: View): Record<string, string> {
  return view.text ? { [NAMES[view.field]]: view.text } : {};
}

export function pagePath(topic: string, view: View): string {
  const position: Record<string, string> = view.cursor
    ? { [view.before ? "before" : "cursor"]: view.cursor }
    : { offset: view.from };
  return v1(["topics", topic, "records"], { ...position, partitions: view.partition, limit: ROWS, int64: "string" });
}

/** `cursor`: where the tail was paused. */
export function tailPath(topic: string, view: View, cursor: string): string {
  const position: Record<string, string> = cursor ? { cursor } : { offset: "end" };
  return v1(["topics", topic, "records"], { ...position, partitions: view.partition, int64: "string", ...where(view) });
}

export function searchBody(view: View) {
  return {
    where: where(view),
    from: view.from === NEWEST ? "start" : view.from,
    ...(view.partition ? { partitions: [Number(view.partition)] } : {}),
    limit: 500,
    budget_ms: 20_000,
  };
}

export const idOf = (record: LogRecord) => `${record.partition}:${record.offset}`;

/** Pages that are read from their end show the newest first; those that are read on, the oldest. */
export function newestFirst(view: View): boolean {
  return view.live || view.before || (!view.cursor && view.from.startsWith("-"));
}
