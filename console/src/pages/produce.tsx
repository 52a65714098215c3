// Publishing a record: a new one, or an old one edited and sent again.

import { useState } from "preact/hooks";
import { call, v1 } from "../lib/api";
import { produceBody, produceCommand, type Draft, type Where } from "../lib/records";
import type { Bytes } from "../lib/types";
import { Commands, say, Trouble } from "../ui/bits";
import { Dialog, useDoing } from "../ui/dialog";

export type Again = Draft;

type Form = "text" | "base64" | "null";

interface Field {
  form: Form;
  text: string;
}

const FORMS: [Form, string][] = [
  ["text", "Text"],
  ["base64", "Base64"],
  ["null", "Null"],
];

function fieldOf(data: Bytes): Field {
  if (data === null) return { form: "null", text: "" };
  return typeof data === "string" ? { form: "text", text: data } : { form: "base64", text: data.base64 };
}

function dataOf(field: Field): Bytes {
  if (field.form === "null") return null;
  return field.form === "text" ? field.text : { base64: field.text };
}

export function Produce({
  where,
  partitions,
  from,
  onClose,
  onDone,
}: {
  where: Where;
  partitions: number;
  from: Again;
  onClose: () => void;
  onDone: () => void;
}) {
  const again = from.partition !== undefined;
  const [key, setKey] = useState(fieldOf(from.key));
  const [value, setValue] = useState(fieldOf(from.value));
  const [headers, setHeaders] = useState(from.headers.map((h) => ({ name: h.name, ...fieldOf(h.value) })));
  const [partition, setPartition] = useState("");
  const [busy, error, run] = useDoing();
  const draft: Draft = {
    key: dataOf(key),
    value: dataOf(value),
    headers: headers.filter((h) => h.name !== "").map((h) => ({ name: h.name, value: dataOf(h) })),
    ...(partition === "" ? {} : { partition: Number(partition) }),
  };
  const send = () =>
    run(async () => {
      const answer = await call<{ results: { partition: number; offset: string | number }[] }>(v1(["topics", where.topic, "records"]), {
        method: "POST",
        body: produceBody(draft),
      });
      const at = answer.results[0];
      say(at ? `Stored at ${at.partition}:${at.offset}` : "Stored");
      onDone();
    });
  return (
    <Dialog title={again ? `Send again to ${where.topic}` : `Publish to ${where.topic}`} onClose={onClose} wide>
      {error && <Trouble error={error} />}
      <Entry id="key" label="Key" field={key} onField={setKey} rows={1} />
      <Entry id="value" label="Value" field={value} onField={setValue} rows={9} />
      <div class="row">
        <span class="label">
          Headers
          <button type="button" class="small" onClick={() => setHeaders([...headers, { name: "", form: "text", text: "" }])}>
            Add
          </button>
        </span>
        {headers.map((header, n) => {
          const change = (patch: Partial<typeof header>) => setHeaders(headers.map((h, m) => (m === n ? { ...h, ...patch } : h)));
          return (
            <div class="header-row" key={n}>
              <input class="mono" aria-label={`Name of header ${n + 1}`} placeholder="name" value={header.name} onInput={(e) => change({ name: e.currentTarget.value })} />
              <input
                class="mono"
                aria-label={`Value of header ${n + 1}`}
                placeholder={header.form === "base64" ? "base64" : "value"}
                value={header.text}
                onInput={(e) => change({ text: e.currentTarget.value, form: header.form === "null" ? "text" : header.form })}
              />
              <button type="button" class="bare" aria-label={`Remove header ${n + 1}`} onClick={() => setHeaders(headers.filter((_, m) => m !== n))}>
                Remove
              </button>
            </div>
          );
        })}
      </div>
      <div class="row">
        <label for="to-partition">Partition</label>
        <input
          id="to-partition"
          type="number"
          min="0"
          max={partitions - 1}
          placeholder={key.form === "null" ? "any" : "the key's own"}
          value={partition}
          onInput={(e) => setPartition(e.currentTarget.value)}
        />
      </div>
      <details>
        <summary class="soft">The same as a command</summary>
        <Commands list={[["curl", produceCommand(where, draft)]]} />
      </details>
      <footer>
        <button type="button" onClick={onClose}>Cancel</button>
        <button type="button" class="main" disabled={busy} onClick={send}>
          {busy ? "Sending…" : "Publish"}
        </button>
      </footer>
    </Dialog>
  );
}

function Entry({ id, label, field, onField, rows }: { id: string; label: string; field: Field; onField: (field: Field) => void; rows: number }) {
  return (
    <div class="row">
      <div class="label">
        <label for={id}>{label}</label>
        <select class="small" aria-label={`Form of the ${label.toLowerCase()}`} value={field.form} onChange={(e) => onField({ ...field, form: e.currentTarget.value as Form })}>
          {FORMS.map(([form, text]) => (
            <option key={form} value={form}>{text}</option>
          ))}
        </select>
      </div>
      <textarea id={id} rows={rows} spellcheck={false} disabled={field.form === "null"} value={field.form === "null" ? "" : field.text} onInput={(e) => onField({ ...field, text: e.currentTarget.value })} />
    </div>
  );
}
