// Records: their bytes, and the commands that bring them to a terminal.

import type { Bytes, LogRecord } from "./types";

/** Of a value no more than this is shown at once. */
export const SHOWN = 16_384;

export function bytesOf(data: Bytes): Uint8Array | null {
  if (data === null) return null;
  if (typeof data === "string") return new TextEncoder().encode(data);
  return Uint8Array.from(atob(data.base64), (c) => c.charCodeAt(0));
}

export function size(data: Bytes): number {
  if (data === null) return 0;
  if (typeof data === "string") {
    let n = 0;
    for (const c of data) {
      const code = c.codePointAt(0) ?? 0;
      n += code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    }
    return n;
  }
  const padding = data.base64.endsWith("==") ? 2 : data.base64.endsWith("=") ? 1 : 0;
  return (data.base64.length / 4) * 3 - padding;
}

const CONTROL = /[\u0000-\u001f\u007f]/g;

/** One line for a table: control characters as their pictures, so that nothing hides. */
export function line(data: Bytes, most = 400): string {
  if (data === null) return "";
  if (typeof data !== "string") {
    const some = bytesOf({ base64: data.base64.slice(0, 64) }) ?? new Uint8Array();
    return `0x${Array.from(some, (b) => b.toString(16).padStart(2, "0")).join("")}`;
  }
  return data
    .slice(0, most)
    .replace(CONTROL, (c) => (c === "\u007f" ? "␡" : String.fromCharCode(0x2400 + c.charCodeAt(0))));
}

/** Offset, 16 bytes in hexadecimal, and the same as text, a line each. */
export function hex(data: Uint8Array): string {
  const lines: string[] = [];
  for (let at = 0; at < data.length; at += 16) {
    const row = Array.from(data.subarray(at, at + 16));
    const digits = row.map((b) => b.toString(16).padStart(2, "0"));
    const left = `${digits.slice(0, 8).join(" ")}  ${digits.slice(8).join(" ")}`.padEnd(48);
    const text = row.map((b) => (b >= 0x20 && b < 0x7f ? String.fromCharCode(b) : "·")).join("");
    lines.push(`${at.toString(16).padStart(8, "0")}  ${left}  ${text}`);
  }
  return lines.join("\n");
}

/** A word of a shell's command line: nothing in it is looked at by the shell. */
export function shell(text: string): string {
  if (/^[\w@%+=:,./-]+$/.test(text)) return text;
  return `'${text.replaceAll("'", "'\\''")}'`;
}

export interface Where {
  /** `host:port` of a Kafka listener. */
  kafka: string;
  /** `http://host:port` of this page. */
  http: string;
  topic: string;
}

/** What reads one record, by three tools. */
export function readCommands(where: Where, record: LogRecord): [string, string][] {
  const { topic } = where;
  const { partition, offset } = record;
  const path = `${where.http}/v1/topics/${encodeURIComponent(topic)}/partitions/${partition}`;
  return [
    [
      "kcat",
      `kcat -b ${shell(where.kafka)} -C -t ${shell(topic)} -p ${partition} -o ${offset} -c 1 -f '%p:%o %k\\n%s\\n'`,
    ],
    ["curl", `curl -sS ${shell(`${path}?offset=${offset}&limit=1`)}`],
    [
      "riverlog",
      `riverlog consume ${shell(topic)} -b ${shell(where.kafka)} --partition ${partition} --from ${offset} -n 1 -o json`,
    ],
  ];
}

/** What reads on from a position, for the view as it is. */
export function viewCommands(where: Where, partition: string, from: string): [string, string][] {
  const one = partition !== "";
  const time = from.startsWith("time:") ? Date.parse(from.slice(5)) : Number.NaN;
  const offset = Number.isNaN(time)
    ? from === "start" ? "beginning" : from
    : `s@${time}`;
  const path = one
    ? `${where.http}/v1/topics/${encodeURIComponent(where.topic)}/partitions/${partition}`
    : `${where.http}/v1/topics/${encodeURIComponent(where.topic)}/records`;
  return [
    ["kcat", `kcat -b ${shell(where.kafka)} -C -t ${shell(where.topic)}${one ? ` -p ${partition}` : ""} -o ${shell(offset)} -e`],
    ["curl", `curl -sS ${shell(`${path}?offset=${encodeURIComponent(from)}`)}`],
    [
      "riverlog",
      `riverlog consume ${shell(where.topic)} -b ${shell(where.kafka)}${one ? ` --partition ${partition}` : ""} --from ${shell(from.replace(/^time:/, ""))} -e`,
    ],
  ];
}

/** A record as a request would send it. */
export interface Draft {
  key: Bytes;
  value: Bytes;
  headers: { name: string; value: Bytes }[];
  partition?: number;
}

export function produceBody(draft: Draft) {
  const { partition, ...rest } = draft;
  return { records: [partition === undefined ? rest : { ...rest, partition }] };
}

export function produceCommand(where: Where, draft: Draft): string {
  const path = `${where.http}/v1/topics/${encodeURIComponent(where.topic)}/records`;
  const body = JSON.stringify(produceBody(draft));
  return `curl -sS ${shell(path)} -H 'Content-Type: application/json' -d ${shell(body)}`;
}

/** As lines of JSON, for a file. */
export function ndjson(records: LogRecord[]): string {
  return records.map((record) => `${JSON.stringify(record)}\n`).join("");
}
