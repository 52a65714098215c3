// Tables whose order is the server's: a column's heading asks for another one.

import type { ComponentChildren } from "preact";
import { setQuery } from "../lib/router";

export function Sorted({
  name,
  now,
  children,
  num,
  ascending,
}: {
  /** What the server calls the order. */
  name: string;
  now: string;
  children: ComponentChildren;
  num?: boolean;
  ascending?: boolean;
}) {
  const direction = ascending ? "ascending" : "descending";
  return (
    <th scope="col" class={num ? "num" : ""} aria-sort={now === name ? direction : undefined}>
      <button type="button" onClick={() => setQuery({ sort: name, page: undefined })}>
        {children}
      </button>
    </th>
  );
}

/** Rows on a page. */
export const PAGE = 100;

export function Pages({ shown, total, what, page }: { shown: number; total: number; what: string; page: number }) {
  const said = total.toLocaleString("en");
  if (page === 0 && shown >= total) {
    return shown > 12 ? (
      <p class="pages">
        {said} {what}
      </p>
    ) : null;
  }
  const first = page * PAGE;
  const turn = (to: number) => {
    setQuery({ page: to ? String(to) : undefined }, false);
    scrollTo(0, 0);
  };
  return (
    <nav class="pages" aria-label="Pages">
      <span class="push" />
      <span>
        {(first + 1).toLocaleString("en")}–{(first + shown).toLocaleString("en")} of {said} {what}
      </span>
      <button type="button" class="small" disabled={page === 0} onClick={() => turn(page - 1)}>
        Previous
      </button>
      <button type="button" class="small" disabled={first + shown >= total} onClick={() => turn(page + 1)}>
        Next
      </button>
    </nav>
  );
}
