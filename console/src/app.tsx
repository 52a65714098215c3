// The frame around all pages: where one can go, and which page an address means.

import { useEffect, useState } from "preact/hooks";
import { useLive, v1 } from "./lib/api";
import { short } from "./lib/format";
import { FrameContext, type Frame } from "./lib/frame";
import { go, to, usePlace, type Place } from "./lib/router";
import { change, dark, useSettings } from "./lib/settings";
import type { Broker, Cluster, Stats } from "./lib/types";
import { Brokers } from "./pages/brokers";
import { Group } from "./pages/group";
import { Groups } from "./pages/groups";
import { Overview } from "./pages/overview";
import { Topic } from "./pages/topic";
import { Topics } from "./pages/topics";
import { Transactions } from "./pages/transactions";
import { Toast } from "./ui/bits";
import { Keys } from "./ui/keys";

const PAGES: [string, string][] = [
  ["", "Overview"],
  ["topics", "Topics"],
  ["groups", "Groups"],
  ["transactions", "Transactions"],
  ["brokers", "Brokers"],
];

function Page({ place }: { place: Place }) {
  const [page, name, tab] = place.path;
  const query = place.query;
  switch (page) {
    case undefined:
      return <Overview query={query} />;
    case "topics":
      return name === undefined ? <Topics query={query} /> : <Topic key={name} name={name} tab={tab ?? "records"} query={query} />;
    case "groups":
      return name === undefined ? <Groups query={query} /> : <Group key={name} name={name} tab={tab ?? "lag"} query={query} />;
    case "transactions":
      return <Transactions query={query} />;
    case "brokers":
      return <Brokers id={name} query={query} />;
  }
  return (
    <>
      <div class="head">
        <h1>There is no such page</h1>
      </div>
      <p class="soft">
        <a class="linked" href={to([])}>
          Go to the overview
        </a>
      </p>
    </>
  );
}

/** What the tab of the browser says: the most special first. */
function titleOf(place: Place): string {
  const [page, name, tab] = place.path;
  const label = PAGES.find(([key]) => key === (page ?? ""))?.[1] ?? "Not found";
  return [tab, name ?? label, "Riverlog"].filter(Boolean).join(" · ");
}

export function App() {
  const place = usePlace();
  const settings = useSettings();
  const cluster = useLive<Cluster>(v1(["cluster"]), 15_000);
  const brokers = useLive<{ brokers: Broker[] }>(v1(["brokers"]), 60_000);
  const stats = useLive<Stats>(v1(["stats"]), 10_000);
  const [help, setHelp] = useState(false);
  const listener = brokers.data?.brokers[0]?.listeners[0];
  const fixed = stats.data?.read_only ?? false;
  const frame: Frame = {
    cluster: cluster.data,
    stats: stats.data,
    kafka: listener ? `${listener.host.includes(":") ? `[${listener.host}]` : listener.host}:${listener.port}` : "localhost:9092",
    locked: settings.locked || fixed,
  };
  const title = titleOf(place);
  const at = place.path.join("/");
  useEffect(() => {
    document.title = title;
  }, [title]);
  // A new page begins at its heading, for those who hear it.
  const [first, setFirst] = useState(at);
  useEffect(() => {
    if (at === first) return;
    setFirst(at);
    document.querySelector<HTMLElement>("main h1")?.focus({ preventScroll: true });
  }, [at]);
  const counts: Record<string, number | undefined> = {
    topics: cluster.data?.topics,
    groups: stats.data?.groups,
    brokers: cluster.data?.brokers,
  };
  const here = place.path[0] ?? "";
  return (
    <FrameContext.Provider value={frame}>
      <a class="skip" href="#main">
        Skip to the page
      </a>
      <div class="shell">
        <header class="rail">
          <a class="brand" href={to([])} aria-label="Riverlog, overview">
            <svg viewBox="0 0 26 16" aria-hidden="true" fill="none" stroke="currentColor" stroke-width="2" stroke-linecap="round">
              <path d="M1 2h24" />
              <path d="M1 8h5c6 0 6 6 11 6h8" />
              <path d="M1 14h5c6 0 6-6 11-6h8" opacity=".5" />
            </svg>
            Riverlog
          </a>
          <nav aria-label="Pages">
            <ul>
              {PAGES.map(([key, label]) => (
                <li key={key}>
                  <a href={to(key ? [key] : [])} aria-current={here === key ? "page" : undefined}>
                    {label}
                    {counts[key] !== undefined && <span>{short(counts[key])}</span>}
                  </a>
                </li>
              ))}
            </ul>
          </nav>
          <div class="foot">
            {cluster.data && (
              <p>
                Cluster <span class="mono">{cluster.data.cluster_id}</span>
                <br />
                Version {cluster.data.version}
              </p>
            )}
            {fixed && <p>Read-only: this broker takes no changes from the console.</p>}
            <div class="switches">
              {!fixed && (
                <button
                  type="button"
                  class="bare"
                  aria-pressed={settings.locked}
                  title="Nothing can be changed from this browser while it is on"
                  onClick={() => change({ locked: !settings.locked })}
                >
                  Read-only
                </button>
              )}
              <button type="button" class="bare" onClick={() => change({ theme: dark() ? "light" : "dark" })}>
                {dark() ? "Light" : "Dark"}
              </button>
              <button type="button" class="bare" aria-label="Keys of the keyboard" onClick={() => setHelp(true)}>
                <kbd>?</kbd>
              </button>
            </div>
          </div>
        </header>
        <main class="page" id="main" tabIndex={-1}>
          <Page place={place} />
        </main>
      </div>
      <Keys help={help} onHelp={setHelp} onGo={(key) => go(to(key ? [key] : []))} />
      <Toast />
    </FrameContext.Provider>
  );
}
