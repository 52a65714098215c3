// What one reader prefers, kept in the browser.

import { useEffect, useState } from "preact/hooks";

export type Theme = "system" | "light" | "dark";

export interface Settings {
  theme: Theme;
  /** Nothing can be changed from this browser until it is unlocked. */
  locked: boolean;
}

const KEY = "riverlog-console";
const watchers = new Set<() => void>();
let current: Settings = { theme: "system", locked: false, ...read() };

function read(): Partial<Settings> {
  try {
    return JSON.parse(localStorage.getItem(KEY) ?? "{}");
  } catch {
    return {};
  }
}

export function dark(): boolean {
  const { theme } = current;
  return theme === "dark" || (theme === "system" && matchMedia("(prefers-color-scheme: dark)").matches);
}

export function show() {
  const root = document.documentElement;
  root.dataset.theme = dark() ? "dark" : "light";
  for (const watcher of watchers) watcher();
}

export function change(patch: Partial<Settings>) {
  current = { ...current, ...patch };
  try {
    localStorage.setItem(KEY, JSON.stringify(current));
  } catch {
    // A browser that keeps nothing: it holds for this page.
  }
  show();
}

export function useSettings(): Settings {
  const [, again] = useState(0);
  useEffect(() => {
    const look = () => again((n) => n + 1);
    watchers.add(look);
    return () => void watchers.delete(look);
  }, []);
  return current;
}

export function followSystem() {
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", show);
  show();
}
