// The broker's `/v1`, typed. What a browser writes carries a header that other sites can't send.

import { useCallback, useEffect, useRef, useState } from "preact/hooks";

/** A problem document (RFC 9457), or no answer at all (status 0). */
export class Problem extends Error {
  constructor(
    readonly status: number,
    readonly title: string,
    readonly detail: string,
    readonly hint?: string,
    readonly type = "",
  ) {
    super(detail || title);
  }
}

export async function problemOf(response: Response): Promise<Problem> {
  const text = await response.text().catch(() => "");
  try {
    const body = JSON.parse(text);
    return new Problem(response.status, body.title ?? response.statusText, body.detail ?? "", body.hint, body.type);
  } catch {
    return new Problem(response.status, response.statusText || `status ${response.status}`, text.slice(0, 300));
  }
}

interface Options {
  method?: string;
  body?: unknown;
  signal?: AbortSignal;
  accept?: string;
}

export async function request(path: string, options: Options = {}): Promise<Response> {
  const headers: Record<string, string> = { "Riverlog-Client": "console", Accept: options.accept ?? "application/json" };
  if (options.body !== undefined) headers["Content-Type"] = "application/json";
  let response: Response;
  try {
    response = await fetch(path, {
      method: options.method ?? "GET",
      headers,
      body: options.body === undefined ? undefined : JSON.stringify(options.body),
      signal: options.signal,
    });
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw new Problem(0, "the broker doesn't answer", "No connection. This page tries again by itself.");
  }
  if (!response.ok) throw await problemOf(response);
  return response;
}

export async function call<T>(path: string, options: Options = {}): Promise<T> {
  const response = await request(path, options);
  return (response.status === 204 ? undefined : await response.json()) as T;
}

/** `/v1/topics/a%2Fb?x=1` */
export function v1(path: string[], query: Record<string, string | number | undefined> = {}): string {
  const pairs = Object.entries(query)
    .filter(([, value]) => value !== undefined && value !== "")
    .map(([name, value]) => [name, String(value)]);
  const search = new URLSearchParams(pairs).toString();
  const address = ["/v1", ...path.map(encodeURIComponent)].join("/");
  return search ? `${address}?${search}` : address;
}

export interface Live<T> {
  /** The newest answer; stays while a newer one is fetched, and when that fails. */
  data?: T;
  error?: Problem;
  /** The first answer for this address is still awaited. */
  waiting: boolean;
  reload: () => void;
}

/** An answer that is fetched again every `every` ms while the page is looked at (0: once). */
export function useLive<T>(path: string | null, every = 0): Live<T> {
  const [state, set] = useState<{ path: string | null; data?: T; error?: Problem }>({ path });
  const again = useRef<() => void>(() => {});
  useEffect(() => {
    if (path === null) return;
    const stop = new AbortController();
    let timer = 0;
    let failures = 0;
    let under = false;
    const ask = async () => {
      clearTimeout(timer);
      if (under) return;
      under = true;
      try {
        const data = await call<T>(path, { signal: stop.signal });
        failures = 0;
        set({ path, data });
      } catch (error) {
        if (stop.signal.aborted) return;
        failures += 1;
        const problem = error instanceof Problem ? error : new Problem(0, String(error), "");
        set((old) => ({ path, data: old.path === path ? old.data : undefined, error: problem }));
      } finally {
        under = false;
      }
      if (stop.signal.aborted) return;
      const wait = failures ? Math.min(30_000, 1000 * 2 ** failures) : every;
      if (wait) timer = window.setTimeout(ask, wait);
    };
    again.current = ask;
    const seen = () => {
      if (document.visibilityState === "visible") ask();
      else clearTimeout(timer);
    };
    document.addEventListener("visibilitychange", seen);
    ask();
    return () => {
      stop.abort();
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", seen);
    };
  }, [path, every]);
  const reload = useCallback(() => again.current(), []);
  const current = state.path === path ? state : { data: undefined, error: undefined };
  return {
    data: current.data,
    error: current.error,
    waiting: path !== null && current.data === undefined && current.error === undefined,
    reload,
  };
}
