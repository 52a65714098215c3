// Where the reader is: every view is an address, so that it can be sent to somebody else.

import { useEffect, useState } from "preact/hooks";

export const BASE = "/console";

export interface Place {
  /** Decoded segments behind the base. */
  path: string[];
  query: URLSearchParams;
}

function decode(segment: string): string {
  try {
    return decodeURIComponent(segment);
  } catch {
    return segment;
  }
}

export function parse(pathname: string, search: string): Place {
  const rest = pathname.startsWith(BASE) ? pathname.slice(BASE.length) : pathname;
  const path = rest.split("/").filter(Boolean).map(decode);
  return { path, query: new URLSearchParams(search) };
}

/** The address of a view: names may hold any character. */
export function to(path: string[], query: Record<string, string | undefined> = {}): string {
  const pairs = Object.entries(query).filter((pair): pair is [string, string] => !!pair[1]);
  const search = new URLSearchParams(pairs).toString();
  const address = [BASE, ...path.map(encodeURIComponent)].join("/");
  return search ? `${address}?${search}` : address;
}

const watchers = new Set<() => void>();

function moved() {
  for (const watcher of watchers) watcher();
}

export function go(address: string, replace = false) {
  if (address === location.pathname + location.search) return;
  history[replace ? "replaceState" : "pushState"](null, "", address);
  moved();
}

/** Changes some of the query and keeps the rest; an empty value goes. */
export function setQuery(patch: Record<string, string | undefined>, replace = true) {
  const query = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(patch)) {
    if (value) query.set(name, value);
    else query.delete(name);
  }
  const search = query.toString();
  go(search ? `${location.pathname}?${search}` : location.pathname, replace);
}

export function usePlace(): Place {
  const [place, set] = useState(() => parse(location.pathname, location.search));
  useEffect(() => {
    const look = () => set(parse(location.pathname, location.search));
    watchers.add(look);
    addEventListener("popstate", look);
    look();
    return () => {
      watchers.delete(look);
      removeEventListener("popstate", look);
    };
  }, []);
  return place;
}

/** Plain clicks on links of ours stay in the page; all others are the browser's. */
export function followLinks() {
  document.addEventListener("click", (event) => {
    if (event.defaultPrevented || event.button !== 0) return;
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    const link = (event.target as Element | null)?.closest?.("a");
    if (!link || link.target || link.hasAttribute("download") || link.origin !== location.origin) return;
    if (link.pathname !== BASE && !link.pathname.startsWith(`${BASE}/`)) return;
    event.preventDefault();
    go(link.pathname + link.search);
    scrollTo(0, 0);
  });
}
