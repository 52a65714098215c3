// Small pieces that every page is made of.

import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { Problem } from "../lib/api";

export type Mood = "good" | "warn" | "bad" | "idle";

const SHAPES: Record<Mood, string> = {
  good: "M1.5 6.2 4.6 9.3 10.5 2.7",
  warn: "M6 1 11.3 10.5H.7ZM6 4.6V7.2M6 8.9v.1",
  bad: "M2 2 10 10M10 2 2 10",
  idle: "M2 6h8",
};

/** A state in a word, with a shape of its own: the colour alone says nothing. */
export function State({ mood, children }: { mood: Mood; children: ComponentChildren }) {
  return (
    <span class={`state ${mood}`}>
      <svg viewBox="0 0 12 12" aria-hidden="true" fill="none" stroke="currentColor" stroke-width="1.8" stroke-linecap="round" stroke-linejoin="round">
        <path d={SHAPES[mood]} />
      </svg>
      {children}
    </span>
  );
}

export function Trouble({ error, stale }: { error: Problem; stale?: boolean }) {
  return (
    <div class={`note ${stale ? "warn" : "bad"}`} role={stale ? "status" : "alert"}>
      <p>
        {stale ? "What is shown is older: " : ""}
        {error.detail || error.title}
      </p>
      {error.hint && <p>{error.hint}</p>}
    </div>
  );
}

/** What a live answer is, or why it isn't there. */
export function Loaded<T>({
  live,
  children,
}: {
  live: { data?: T; error?: Problem };
  children: (data: T) => ComponentChildren;
}) {
  if (live.data === undefined) {
    return live.error ? <Trouble error={live.error} /> : <div class="wait" aria-busy="true" />;
  }
  return (
    <>
      {live.error && <Trouble error={live.error} stale />}
      {children(live.data)}
    </>
  );
}

export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <strong>{title}</strong>
      {children}
    </div>
  );
}

/** The number, and under it a line as long as its share of the largest. */
export function Share({ value, most, children }: { value: number; most: number; children: ComponentChildren }) {
  const part = most > 0 ? Math.max(value > 0 ? 2 : 0, (value / most) * 100) : 0;
  return (
    <>
      {children}
      <span class="share" aria-hidden="true" style={{ "--part": `${part}%` }} />
    </>
  );
}

/** A field that filters: `/` leads to it, and what is typed counts once the typing pauses. */
export function Filter({
  value,
  label,
  onValue,
  wide,
}: {
  value: string;
  label: string;
  onValue: (value: string) => void;
  wide?: boolean;
}) {
  const [text, set] = useState(value);
  const input = useRef<HTMLInputElement>(null);
  const timer = useRef(0);
  useEffect(() => {
    if (document.activeElement !== input.current) set(value);
  }, [value]);
  useEffect(() => () => clearTimeout(timer.current), []);
  const type = (next: string) => {
    set(next);
    clearTimeout(timer.current);
    timer.current = window.setTimeout(() => onValue(next), 180);
  };
  return (
    <span class={`field grow ${wide ? "wide" : ""}`}>
      <input
        ref={input}
        type="search"
        data-filter
        value={text}
        placeholder={label}
        aria-label={label}
        autocomplete="off"
        spellcheck={false}
        onInput={(event) => type(event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key === "Escape") event.currentTarget.blur();
          if (event.key === "Enter") {
            clearTimeout(timer.current);
            onValue(text);
          }
        }}
      />
      <kbd aria-hidden="true">/</kbd>
    </span>
  );
}

let toastTimer = 0;

/** Says something in passing, to eyes and to screen readers. */
export function say(text: string) {
  const toast = document.querySelector<HTMLElement>("#toast");
  if (!toast) return;
  toast.textContent = text;
  toast.hidden = false;
  clearTimeout(toastTimer);
  toastTimer = window.setTimeout(() => {
    toast.hidden = true;
  }, 3500);
}

export function Toast() {
  return <div id="toast" class="toast" role="status" aria-live="polite" hidden />;
}

export async function copy(text: string, what: string) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Browsers give the clipboard to secure pages only; on plain HTTP the old way still works.
    const area = document.createElement("textarea");
    area.value = text;
    area.className = "out";
    (document.querySelector("dialog[open]") ?? document.body).append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  say(`${what} copied`);
}

export function Commands({ list }: { list: [string, string][] }) {
  return (
    <div>
      {list.map(([tool, command]) => (
        <div class="command" key={tool}>
          <span>{tool}</span>
          <code>{command}</code>
          <button type="button" class="small bare" aria-label={`Copy as ${tool}`} onClick={() => copy(command, `${tool} command`)}>
            Copy
          </button>
        </div>
      ))}
    </div>
  );
}

export function Windows({
  value,
  choices,
  onValue,
  label,
}: {
  value: string;
  choices: [string, string][];
  onValue: (value: string) => void;
  label: string;
}) {
  return (
    <div class="windows" role="group" aria-label={label}>
      {choices.map(([key, text]) => (
        <button type="button" key={key} aria-pressed={key === value} onClick={() => onValue(key)}>
          {text}
        </button>
      ))}
    </div>
  );
}
