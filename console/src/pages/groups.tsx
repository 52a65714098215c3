// All groups: who is behind, and whether it gets worse.

import { useLive, v1 } from "../lib/api";
import { count, short } from "../lib/format";
import { setQuery, to } from "../lib/router";
import type { GroupsPage } from "../lib/types";
import { Empty, Filter, Loaded, Share, State, type Mood } from "../ui/bits";
import { Spark } from "../ui/plot";
import { PAGE, Pages, Sorted } from "../ui/table";

const STATES: Record<string, [Mood, string]> = {
  Stable: ["good", "stable"],
  Empty: ["idle", "empty"],
  PreparingRebalance: ["warn", "rebalancing"],
  CompletingRebalance: ["warn", "rebalancing"],
  Assigning: ["warn", "assigning"],
  Reconciling: ["warn", "reconciling"],
  Dead: ["bad", "dead"],
};

export function GroupState({ state }: { state: string }) {
  const [mood, word] = STATES[state] ?? ["idle", state];
  return <State mood={mood}>{word}</State>;
}

export function Groups({ query }: { query: URLSearchParams }) {
  const sort = query.get("sort") ?? "lag";
  const filter = query.get("q") ?? "";
  const page = Number(query.get("page") ?? 0) || 0;
  const live = useLive<GroupsPage>(v1(["stats", "groups"], { sort, filter, page: page || undefined, limit: PAGE }), 10_000);
  return (
    <>
      <div class="head">
        <h1 tabIndex={-1}>Groups</h1>
      </div>
      <div class="bar">
        <Filter value={filter} label="Filter by name" onValue={(q) => setQuery({ q, page: undefined })} />
      </div>
      <Loaded live={live}>
        {(data) => {
          if (data.groups.length === 0) {
            return filter ? (
              <Empty title={`No group's name holds “${filter}”`} />
            ) : (
              <Empty title="No groups yet">A consumer with a group id that joins or commits makes one.</Empty>
            );
          }
          const most = Math.max(...data.groups.map((g) => g.lag));
          return (
            <>
              <div class="sheet">
                <table>
                  <thead>
                    <tr>
                      <Sorted name="name" now={sort} ascending>Group</Sorted>
                      <Sorted name="state" now={sort} ascending>State</Sorted>
                      <Sorted name="members" now={sort} num>Members</Sorted>
                      <th scope="col" class="num">Topics</th>
                      <th scope="col" class="num">Lag, last minutes</th>
                      <Sorted name="lag" now={sort} num>Lag</Sorted>
                    </tr>
                  </thead>
                  <tbody>
                    {data.groups.map((group) => (
                      <tr key={group.group}>
                        <th scope="row">
                          <a href={to(["groups", group.group])}>{group.group}</a>
                          {group.type === "consumer" && <span class="tag">new protocol</span>}
                        </th>
                        <td><GroupState state={group.state} /></td>
                        <td class="num">{count(group.members)}</td>
                        <td class="num">{count(group.topics)}</td>
                        <td class="num"><Spark values={group.trend} lag /></td>
                        <td class="num" title={count(group.lag)}><Share value={group.lag} most={most}>{short(group.lag)}</Share></td>
                      </tr>
                    ))}
                  </tbody>
                </table>
              </div>
              <Pages shown={data.groups.length} total={data.total} what="groups" page={page} />
            </>
          );
        }}
      </Loaded>
    </>
  );
}
