// One record, whole: its value laid out, as it was, or byte by byte; and how to get it elsewhere.

import { useEffect, useRef, useState } from "preact/hooks";
import { bytes, clock, count, iso } from "../lib/format";
import { layout, tokens, type Token } from "../lib/json";
import { bytesOf, hex, readCommands, SHOWN, size, type Where } from "../lib/records";
import type { Bytes, LogRecord } from "../lib/types";
import { Commands, copy, Windows } from "../ui/bits";
import type { Again } from "./produce";

export function Detail({
  at,
  record,
  missing,
  where,
  onClose,
  onAgain,
}: {
  at: string;
  record?: LogRecord;
  missing: boolean;
  where: Where;
  onClose: () => void;
  onAgain?: (draft: Again) => void;
}) {
  const title = useRef<HTMLHeadingElement>(null);
  const [partition = "", offset = ""] = at.split(":");
  useEffect(() => {
    // On narrow screens it lies over the list: there it takes the focus.
    if (matchMedia("(max-width: 1100px)").matches) title.current?.focus();
  }, []);
  return (
    <section class="detail" aria-label={`Record ${offset} of partition ${partition}`}>
      <header>
        <h2 ref={title} tabIndex={-1}>
          <span class="mono">{partition}:{offset}</span>
        </h2>
        {record && onAgain && (
          <button
            type="button"
            class="small"
            onClick={() => onAgain({ key: record.key, value: record.value, headers: record.headers, partition: record.partition })}
          >
            Send again…
          </button>
        )}
        <button type="button" class="small bare" onClick={onClose}>
          Close
        </button>
      </header>
      {missing && (
        <section>
          <p>There is no record at this offset: retention or compaction has taken it, or it is a transaction's marker.</p>
        </section>
      )}
      {record && <Whole record={record} where={where} />}
    </section>
  );
}

function Whole({ record, where }: { record: LogRecord; where: Where }) {
  const time = Number(record.timestamp);
  return (
    <>
      <section>
        <dl class="grid">
          <dt>Time</dt>
          <dd title={`${record.timestamp} ms`}>{time < 0 ? "none" : `${clock(time)} · ${iso(time)}`}</dd>
          <dt>Key</dt>
          <dd>
            {record.key === null ? <span class="null">no key</span> : <Part data={record.key} name="key" />}
          </dd>
        </dl>
      </section>
      <Value data={record.value} name={`${where.topic}-${record.partition}-${record.offset}`} />
      {record.headers.length > 0 && (
        <section>
          <header><h3>Headers <span class="soft">{count(record.headers.length)}</span></h3></header>
          <dl class="grid">
            {record.headers.map((header, n) => (
              <>
                <dt class="mono" key={`${n}t`}>{header.name}</dt>
                <dd class="mono" key={`${n}d`}>{header.value === null ? <span class="null">null</span> : <Part data={header.value} name={header.name} />}</dd>
              </>
            ))}
          </dl>
        </section>
      )}
      <section>
        <header><h3>In a terminal</h3></header>
        <Commands list={readCommands(where, record)} />
      </section>
    </>
  );
}

/** Something short: text, or its bytes. */
function Part({ data, name }: { data: Bytes; name: string }) {
  const text = typeof data === "string" ? data : `0x${Array.from((bytesOf(data) ?? new Uint8Array()).slice(0, 256), (b) => b.toString(16).padStart(2, "0")).join("")}`;
  return (
    <span class="mono">
      {text.slice(0, 1024)}
      {text.length > 1024 && "…"}{" "}
      <button type="button" class="small bare" aria-label={`Copy ${name}`} onClick={() => copy(text, name)}>
        Copy
      </button>
    </span>
  );
}

type Shape = "json" | "text" | "hex";

function Value({ data, name }: { data: Bytes; name: string }) {
  const [all, setAll] = useState(false);
  const whole = size(data);
  const text = typeof data === "string" ? data : undefined;
  const cut = !all && whole > SHOWN;
  // A JSON text that is cut is none: it is shown as it stands.
  const json = text !== undefined && !cut && /^\s*[[{]/.test(text) ? tokens(text) : null;
  const shapes: [string, string][] = [];
  if (json) shapes.push(["json", "JSON"]);
  if (text !== undefined) shapes.push(["text", "Text"]);
  shapes.push(["hex", "Bytes"]);
  const [chosen, choose] = useState<Shape>();
  const shape = chosen && shapes.some(([key]) => key === chosen) ? chosen : ((shapes[0]?.[0] ?? "hex") as Shape);
  const save = () => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([(bytesOf(data) ?? new Uint8Array()) as BlobPart]));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  };
  if (data === null) {
    return (
      <section>
        <header><h3>Value</h3></header>
        <p class="null">null: a tombstone. Compaction removes older records with this key.</p>
      </section>
    );
  }
  return (
    <section>
      <header>
        <h3>
          Value <span class="soft">{bytes(whole)}</span>
        </h3>
        {shapes.length > 1 && <Windows label="Form of the value" value={shape} choices={shapes} onValue={(s) => choose(s as Shape)} />}
        <button type="button" class="small bare" onClick={() => copy(text ?? btoa(String.fromCharCode(...(bytesOf(data) ?? []))), text === undefined ? "value in base64" : "value")}>
          Copy
        </button>
        <button type="button" class="small bare" onClick={save}>
          Save
        </button>
      </header>
      {shape === "json" && json ? (
        <pre tabIndex={0} aria-label="Value">{<Coloured list={layout(json)} />}</pre>
      ) : shape === "text" && text !== undefined ? (
        <pre tabIndex={0} aria-label="Value">{cut ? text.slice(0, SHOWN) : text}</pre>
      ) : (
        <pre class="hex" tabIndex={0} aria-label="Value">{hex(cut ? (bytesOf(data) ?? new Uint8Array()).slice(0, SHOWN) : (bytesOf(data) ?? new Uint8Array()))}</pre>
      )}
      {cut && (
        <p class="soft">
          The first {bytes(SHOWN)} of {bytes(whole)}.{" "}
          <button type="button" class="small" onClick={() => setAll(true)}>
            Show all
          </button>
        </p>
      )}
    </section>
  );
}

function Coloured({ list }: { list: Token[] }) {
  // Neighbours of one colour share an element: a large value would be thousands of them.
  const out: Token[] = [];
  for (const token of list) {
    const last = out.at(-1);
    if (last?.kind === token.kind) last.text += token.text;
    else out.push({ ...token });
  }
  return (
    <>
      {out.map((token, n) => (
        <span key={n} class={`j-${token.kind}`}>{token.text}</span>
      ))}
    </>
  );
}
