// Transactions: which are open, since when, and what they hold up.

import { useState } from "preact/hooks";
import { call, useLive, v1 } from "../lib/api";
import { clock, count, duration } from "../lib/format";
import { useFrame } from "../lib/frame";
import { setQuery, to } from "../lib/router";
import type { Transaction } from "../lib/types";
import { Empty, Filter, Loaded, say, State, type Mood } from "../ui/bits";
import { Destroy } from "../ui/dialog";

const STATES: Record<string, [Mood, string]> = {
  Ongoing: ["warn", "open"],
  PrepareCommit: ["warn", "committing"],
  PrepareAbort: ["warn", "aborting"],
  CompleteCommit: ["good", "committed"],
  CompleteAbort: ["idle", "aborted"],
  Empty: ["idle", "empty"],
  PrepareEpochFence: ["warn", "fencing"],
  Dead: ["bad", "dead"],
};

const ROWS = 300;

export function Transactions({ query }: { query: URLSearchParams }) {
  const { locked } = useFrame();
  const [ending, setEnding] = useState<Transaction>();
  const filter = query.get("q") ?? "";
  const open = query.get("open") === "1";
  const live = useLive<{ transactions: Transaction[] }>(v1(["stats", "transactions"], { filter, open: open ? "true" : undefined, limit: ROWS }), 5000);
  return (
    <>
      <div class="head">
        <h1 tabIndex={-1}>Transactions</h1>
      </div>
      <div class="bar">
        <Filter value={filter} label="Filter by transactional id" onValue={(q) => setQuery({ q })} />
        <label class="check">
          <input type="checkbox" checked={open} onChange={(e) => setQuery({ open: e.currentTarget.checked ? "1" : undefined })} />
          Open ones only
        </label>
      </div>
      <Loaded live={live}>
        {(data) =>
          data.transactions.length === 0 ? (
            <Empty title={filter || open ? "Nothing fits" : "No transactions yet"}>
              {!filter && !open && "A producer with a transactional.id makes one."}
            </Empty>
          ) : (
            <>
              <div class="sheet">
                <table>
                  <thead>
                    <tr>
                      <th scope="col">Transactional id</th>
                      <th scope="col">State</th>
                      <th scope="col" class="num">Producer</th>
                      <th scope="col" class="num">Epoch</th>
                      <th scope="col" class="num">Open for</th>
                      <th scope="col" class="num">Aborted after</th>
                      <th scope="col">Partitions</th>
                      {!locked && <th scope="col"><span class="out">End</span></th>}
                    </tr>
                  </thead>
                  <tbody>
                    {data.transactions.map((txn) => {
                      const [mood, word] = STATES[txn.state] ?? ["idle", txn.state];
                      const late = txn.started_ms !== null && Date.now() - txn.started_ms > txn.timeout_ms;
                      const running = txn.state === "Ongoing";
                      return (
                        <tr key={txn.transactional_id}>
                          <th scope="row" class="mono">{txn.transactional_id}</th>
                          <td><State mood={running && late ? "bad" : mood}>{word}</State></td>
                          <td class="num">{txn.producer_id}</td>
                          <td class="num">{txn.producer_epoch}</td>
                          <td class="num" title={txn.started_ms === null ? "" : `since ${clock(txn.started_ms)}`}>
                            {running && txn.started_ms !== null ? duration(Date.now() - txn.started_ms) : <span class="dim">–</span>}
                          </td>
                          <td class="num" title="It is aborted when it is open for longer">{duration(txn.timeout_ms)}</td>
                          <td>
                            {txn.partitions.slice(0, 6).map((p) => (
                              <a key={`${p.topic}-${p.partition}`} class="nowrap" href={to(["topics", p.topic, "partitions"])}>
                                {p.topic}-{p.partition}{" "}
                              </a>
                            ))}
                            {txn.partitions.length > 6 && <span class="dim">and {txn.partitions.length - 6} more</span>}
                            {txn.partitions.length === 0 && <span class="dim">–</span>}
                          </td>
                          {!locked && (
                            <td class="num">
                              {running && (
                                <button type="button" class="small bare" aria-label={`Abort ${txn.transactional_id}`} onClick={() => setEnding(txn)}>
                                  Abort…
                                </button>
                              )}
                            </td>
                          )}
                        </tr>
                      );
                    })}
                  </tbody>
                </table>
              </div>
              {data.transactions.length === ROWS && <p class="pages">The first {count(ROWS)}; the filter finds the others.</p>}
            </>
          )
        }
      </Loaded>
      {ending && (
        <Destroy
          title={`Abort the transaction of ${ending.transactional_id}`}
          name={ending.transactional_id}
          verb="Abort it"
          onClose={() => setEnding(undefined)}
          work={async () => {
            // What a producer does that takes over the id: the earlier one is fenced, and its transaction aborted.
            const body = { transactional_id: ending.transactional_id, timeout_ms: ending.timeout_ms };
            await call(v1(["producers"]), { method: "POST", body });
            say("Aborted");
            setEnding(undefined);
            live.reload();
          }}
        >
          <p>What it has written won't be seen by readers of committed records, and its producer is fenced: it must begin anew.</p>
        </Destroy>
      )}
    </>
  );
}
