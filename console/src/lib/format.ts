// Numbers and times as people read them. The exact value stays within reach: it is the cell's title.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

export function count(n: number | undefined | null): string {
  return n === undefined || n === null ? "–" : whole.format(n);
}

const STEPS = ["", "k", "M", "G", "T", "P", "E"];

function scaled(n: number, base: number): [string, string] {
  let step = 0;
  let value = Math.abs(n);
  while (value >= base && step < STEPS.length - 1) {
    value /= base;
    step += 1;
  }
  let digits = step === 0 ? (value < 10 && !Number.isInteger(value) ? 1 : 0) : value < 9.95 ? 1 : 0;
  // 999.7 k would be written as 1000 k.
  if (Number(value.toFixed(digits)) >= base && step < STEPS.length - 1) {
    value /= base;
    step += 1;
    digits = 1;
  }
  return [(n < 0 ? "−" : "") + value.toFixed(digits), STEPS[step] ?? ""];
}

/** 1,234 as it is up to four digits, then 12 k, 3.4 M. */
export function short(n: number | undefined | null): string {
  if (n === undefined || n === null) return "–";
  if (Number.isInteger(n) && Math.abs(n) < 10_000) return whole.format(n);
  const [value, unit] = scaled(n, 1000);
  return unit ? `${value}\u202f${unit}` : value;
}

export function bytes(n: number | undefined | null): string {
  if (n === undefined || n === null) return "–";
  const [value, unit] = scaled(n, 1000);
  return `${value}\u202f${unit === "k" ? "k" : unit}B`;
}

export function rate(n: number | undefined | null, unit = ""): string {
  if (n === undefined || n === null) return "–";
  if (n === 0) return "0";
  const text = unit === "B" ? bytes(n) : n < 0.05 ? "<0.1" : short(n);
  return text;
}

export function percent(part: number, of: number): string {
  if (of <= 0) return "–";
  const value = (part / of) * 100;
  return value > 0 && value < 1 ? "<1 %" : `${Math.round(value)} %`;
}

/** A length of time in its two largest units at most. */
export function duration(ms: number | undefined | null): string {
  if (ms === undefined || ms === null) return "–";
  if (ms < 0) return "forever";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const s = ms / 1000;
  if (s < 10) return `${s.toFixed(1).replace(/\.0$/, "")} s`;
  const units: [number, string][] = [
    [86_400, "d"],
    [3600, "h"],
    [60, "min"],
    [1, "s"],
  ];
  let left = Math.round(s);
  const parts: string[] = [];
  for (const [size, name] of units) {
    const n = Math.floor(left / size);
    if (n === 0 && parts.length === 0) continue;
    if (n > 0) parts.push(`${n} ${name}`);
    left -= n * size;
    if (parts.length === 2 || size === 1 || left === 0) break;
    if (n === 0) break;
  }
  return parts.join(" ");
}

const two = (n: number) => String(n).padStart(2, "0");

/** Local time to the millisecond; the date only when it isn't today's. */
export function clock(ms: number, now = Date.now()): string {
  if (ms < 0) return "no time";
  const d = new Date(ms);
  const time = `${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}.${String(d.getMilliseconds()).padStart(3, "0")}`;
  const same = new Date(now).toDateString() === d.toDateString();
  return same ? time : `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())} ${time}`;
}

export function iso(ms: number): string {
  const d = new Date(ms);
  return Number.isNaN(d.getTime()) ? String(ms) : d.toISOString();
}

export function ago(ms: number, now = Date.now()): string {
  const past = now - ms;
  return past < 1000 ? "now" : `${duration(past)} ago`;
}

export function plural(n: number, one: string, many = `${one}s`): string {
  return `${count(n)} ${n === 1 ? one : many}`;
}
