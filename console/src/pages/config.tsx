// Configuration: what is set comes first, then the defaults; a change is shown before it is made.

import { useState } from "preact/hooks";
import { call, useLive, v1 } from "../lib/api";
import { bytes, duration } from "../lib/format";
import { useFrame } from "../lib/frame";
import { setQuery } from "../lib/router";
import type { Config } from "../lib/types";
import { Empty, Filter, Loaded, Trouble, say } from "../ui/bits";
import { Dialog, useDoing } from "../ui/dialog";

const SOURCES: Record<Config["source"], string> = {
  topic: "set here",
  group: "set here",
  broker: "set on this broker",
  cluster: "set for the cluster",
  start: "from the start",
  default: "default",
};

/** What a number means, where its name says its unit. */
export function meaning(name: string, value: string | null): string {
  if (value === null || !/^-?\d+$/.test(value)) return "";
  const n = Number(value);
  if (n < 0) return name.endsWith(".ms") ? "no limit in time" : name.endsWith(".bytes") ? "no limit in size" : "";
  if (n >= 9e18) return "no limit";
  if (name.endsWith(".ms") && n >= 1000) return duration(n);
  if (name.endsWith(".bytes") && n >= 1000) return bytes(n);
  if (/\.bytes\./.test(name) && n >= 1000) return bytes(n);
  return "";
}

/** Text with code between backquotes. */
function Words({ text }: { text: string }) {
  return <>{text.split("`").map((part, n) => (n % 2 ? <code key={n}>{part}</code> : part))}</>;
}

export function Configs({
  path,
  of,
  own,
  query,
  fixed,
}: {
  path: string[];
  of: string;
  /** The source that means: set on this very thing. */
  own: Config["source"];
  query: URLSearchParams;
  fixed?: boolean;
}) {
  const { locked } = useFrame();
  const live = useLive<{ configs: Config[] }>(v1(path), 0);
  const [editing, setEditing] = useState<Config>();
  const filter = (query.get("q") ?? "").toLowerCase();
  return (
    <div class="configs">
      <div class="bar">
        <Filter value={query.get("q") ?? ""} label="Filter by name or meaning" onValue={(q) => setQuery({ q })} />
      </div>
      <Loaded live={live}>
        {(data) => {
          const fits = data.configs.filter((c) => `${c.name} ${c.value ?? ""} ${c.documentation}`.toLowerCase().includes(filter));
          const set = fits.filter((c) => c.source !== "default");
          const rest = fits.filter((c) => c.source === "default");
          if (fits.length === 0) return <Empty title="Nothing fits" />;
          const table = (list: Config[], title: string) => (
            <section>
              <h2>{title}</h2>
              <div class="sheet">
                <table>
                  <thead>
                    <tr>
                      <th scope="col">Name</th>
                      <th scope="col">Value</th>
                      <th scope="col">Source</th>
                      {!locked && !fixed && <th scope="col"><span class="out">Change</span></th>}
                    </tr>
                  </thead>
                  <tbody>
                    {list.map((config) => (
                      <tr key={config.name} class={config.source === own ? "set" : ""}>
                        <th scope="row">
                          <span class="mono">{config.name}</span>
                          <span class="about"><Words text={config.documentation} /></span>
                        </th>
                        <td>
                          <span class="mono">{config.sensitive ? "hidden" : config.value === null || config.value === "" ? <span class="null">nothing</span> : config.value}</span>
                          {meaning(config.name, config.value) && <span class="about">{meaning(config.name, config.value)}</span>}
                        </td>
                        <td class={config.source === "default" ? "soft" : ""}>{SOURCES[config.source]}</td>
                        {!locked && !fixed && (
                          <td class="num">
                            {!config.read_only && (
                              <button type="button" class="small bare" aria-label={`Change ${config.name}`} onClick={() => setEditing(config)}>
                                Change
                              </button>
                            )}
                          </td>
                        )}
                      </tr>
                    ))}
                  </tbody>
                </table>
              </div>
            </section>
          );
          return (
            <>
              {set.length > 0 && table(set, "Set")}
              {rest.length > 0 && table(rest, "Defaults")}
            </>
          );
        }}
      </Loaded>
      {editing && (
        <Change
          path={path}
          of={of}
          own={own}
          config={editing}
          onClose={() => setEditing(undefined)}
          onDone={() => {
            setEditing(undefined);
            live.reload();
          }}
        />
      )}
    </div>
  );
}

function Change({
  path,
  of,
  own,
  config,
  onClose,
  onDone,
}: {
  path: string[];
  of: string;
  own: Config["source"];
  config: Config;
  onClose: () => void;
  onDone: () => void;
}) {
  const [value, setValue] = useState(config.value ?? "");
  const [busy, error, run] = useDoing();
  const send = (to: string | null) =>
    run(async () => {
      await call(v1(path), { method: "PATCH", body: { [config.name]: to } });
      say(`${config.name} of ${of} is changed`);
      onDone();
    });
  const changed = value !== (config.value ?? "");
  return (
    <Dialog title={config.name} onClose={onClose}>
      <p class="soft"><Words text={config.documentation} /></p>
      {error && <Trouble error={error} />}
      <div class="row">
        <label for="config-value">
          <span>Value</span>
          <span>{meaning(config.name, value)}</span>
        </label>
        <input id="config-value" class="mono" value={value} autocomplete="off" spellcheck={false} onInput={(e) => setValue(e.currentTarget.value)} />
      </div>
      {changed && (
        <div class="diff" role="status">
          <span>{config.value ?? "nothing"}</span>
          <span aria-label="becomes">→</span>
          <span class="to">{value === "" ? "nothing" : value}</span>
        </div>
      )}
      <footer>
        {config.source === own && (
          <button type="button" class="push" disabled={busy} onClick={() => send(null)}>
            Back to the default
          </button>
        )}
        <button type="button" onClick={onClose}>Cancel</button>
        <button type="button" class="main" disabled={!changed || busy} onClick={() => send(value)}>
          Change
        </button>
      </footer>
    </Dialog>
  );
}
