// Moving a group's offsets: what would happen is shown first, and the group's name is typed before it does.

import { useState } from "preact/hooks";
import { call, v1 } from "../lib/api";
import { count, iso, plural } from "../lib/format";
import { say, Trouble } from "../ui/bits";
import { Dialog, useDoing } from "../ui/dialog";

interface PlanRow {
  topic: string;
  partition: number;
  from: number | null;
  to: number;
  error?: { detail: string };
}

type Kind = "start" | "end" | "time" | "offset" | "back";

const KINDS: [Kind, string][] = [
  ["start", "The start: read everything again"],
  ["end", "The end: skip what is there"],
  ["time", "A time"],
  ["offset", "An offset"],
  ["back", "So many records before the end"],
];

export function Reset({
  group,
  active,
  topics,
  onClose,
  onDone,
}: {
  group: string;
  active: boolean;
  topics: string[];
  onClose: () => void;
  onDone: () => void;
}) {
  const [kind, setKind] = useState<Kind>("time");
  const [time, setTime] = useState(() => {
    const d = new Date(Date.now() - 3_600_000);
    return new Date(d.getTime() - d.getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
  });
  const [number, setNumber] = useState("0");
  const [topic, setTopic] = useState("");
  const [plan, setPlan] = useState<PlanRow[]>();
  const [typed, setTyped] = useState("");
  const [busy, error, run] = useDoing();
  const to = kind === "time" ? `time:${iso(new Date(time).getTime())}` : kind === "offset" ? number : kind === "back" ? `-${number}` : kind;
  const ask = (dry: boolean) =>
    run(async () => {
      const path = `${v1(["groups", group])}:reset${dry ? "?dry_run=true" : ""}`;
      const answer = await call<{ moves: PlanRow[] }>(path, {
        method: "POST",
        body: { to, ...(topic ? { topics: [topic] } : {}) },
      });
      if (dry) setPlan(answer.moves);
      else {
        say(`The offsets of ${group} are moved`);
        onDone();
      }
    });
  const again = () => setPlan(undefined);
  return (
    <Dialog title={`Move the offsets of ${group}`} onClose={onClose} wide>
      {active && (
        <div class="note warn">
          <p>The group has members. The broker refuses to move offsets until they are stopped.</p>
        </div>
      )}
      {error && <Trouble error={error} />}
      <div class="two">
        <div class="row">
          <label for="reset-to">To</label>
          <select id="reset-to" value={kind} onChange={(e) => { setKind(e.currentTarget.value as Kind); again(); }}>
            {KINDS.map(([key, label]) => (
              <option key={key} value={key}>{label}</option>
            ))}
          </select>
        </div>
        <div class="row">
          {kind === "time" && (
            <>
              <label for="reset-time">The first record at or after</label>
              <input id="reset-time" type="datetime-local" step="1" value={time} onInput={(e) => { setTime(e.currentTarget.value); again(); }} />
            </>
          )}
          {(kind === "offset" || kind === "back") && (
            <>
              <label for="reset-number">{kind === "offset" ? "Offset" : "Records"}</label>
              <input id="reset-number" type="number" min="0" value={number} onInput={(e) => { setNumber(e.currentTarget.value); again(); }} />
            </>
          )}
        </div>
      </div>
      {topics.length > 1 && (
        <div class="row">
          <label for="reset-topic">Of</label>
          <select id="reset-topic" value={topic} onChange={(e) => { setTopic(e.currentTarget.value); again(); }}>
            <option value="">all its topics</option>
            {topics.map((name) => (
              <option key={name} value={name}>{name}</option>
            ))}
          </select>
        </div>
      )}
      {plan && <Plan rows={plan} />}
      {plan && plan.length > 0 && (
        <div class="row">
          <label for="reset-name"><span>Type <code>{group}</code> to do it</span></label>
          <input id="reset-name" class="mono" value={typed} autocomplete="off" spellcheck={false} onInput={(e) => setTyped(e.currentTarget.value)} />
        </div>
      )}
      <footer>
        <button type="button" onClick={onClose}>Cancel</button>
        {plan ? (
          <button type="button" class="harm" disabled={busy || typed !== group} onClick={() => ask(false)}>
            Move {plural(plan.length, "offset")}
          </button>
        ) : (
          <button type="button" class="main" disabled={busy} onClick={() => ask(true)}>
            Show what would happen
          </button>
        )}
      </footer>
    </Dialog>
  );
}

function Plan({ rows }: { rows: PlanRow[] }) {
  if (rows.length === 0) return <p class="soft">Nothing would move.</p>;
  return (
    <div class="sheet">
      <table>
        <thead>
          <tr>
            <th scope="col">Partition</th>
            <th scope="col" class="num">Now</th>
            <th scope="col" class="num">Then</th>
            <th scope="col" class="num">Moves by</th>
          </tr>
        </thead>
        <tbody>
          {rows.slice(0, 200).map((row) => {
            const by = row.from === null ? null : row.to - row.from;
            return (
              <tr key={`${row.topic}-${row.partition}`}>
                <th scope="row">{row.topic}-{row.partition}</th>
                <td class="num">{row.from === null ? "nothing" : count(row.from)}</td>
                <td class="num">{row.error ? <span class="mark">{row.error.detail}</span> : count(row.to)}</td>
                <td class="num">{by === null ? "–" : by === 0 ? "–" : `${by > 0 ? "+" : "−"}${count(Math.abs(by))}`}</td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </div>
  );
}
