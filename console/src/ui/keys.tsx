// The keyboard: a few keys that work everywhere, and a list of them.

import { useEffect } from "preact/hooks";
import { Dialog } from "./dialog";

const GO: Record<string, string> = { o: "", t: "topics", g: "groups", x: "transactions", b: "brokers" };

const KEYS: [string[], string][] = [
  [["/"], "to the filter of the page"],
  [["g", "o"], "overview"],
  [["g", "t"], "topics"],
  [["g", "g"], "groups"],
  [["g", "x"], "transactions"],
  [["g", "b"], "brokers"],
  [["j", "k"], "next and previous record or row"],
  [["Enter"], "open what is focused"],
  [["Esc"], "close the record, leave a field"],
  [["Space"], "pause and resume the live tail"],
  [["?"], "this list"],
];

function writes(element: Element | null): boolean {
  return !!element?.closest("input, textarea, select, [contenteditable]");
}

/** Moves the focus along the links and buttons that stand for rows. */
function step(by: number) {
  const rows = [...document.querySelectorAll<HTMLElement>("main tbody .row, main tbody th a")];
  const now = rows.indexOf(document.activeElement as HTMLElement);
  const next = rows[now < 0 ? (by > 0 ? 0 : rows.length - 1) : now + by];
  next?.focus();
  next?.scrollIntoView({ block: "nearest" });
}

export function Keys({
  help,
  onHelp,
  onGo,
}: {
  help: boolean;
  onHelp: (open: boolean) => void;
  onGo: (page: string) => void;
}) {
  useEffect(() => {
    let went = 0;
    const press = (event: KeyboardEvent) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (writes(event.target as Element) || document.querySelector("dialog[open]")) return;
      if (Date.now() - went < 1200 && event.key in GO) {
        went = 0;
        event.preventDefault();
        onGo(GO[event.key] ?? "");
        return;
      }
      went = event.key === "g" ? Date.now() : 0;
      if (event.key === "/") {
        const field = document.querySelector<HTMLInputElement>("[data-filter]");
        if (field) {
          event.preventDefault();
          field.focus();
          field.select();
        }
      } else if (event.key === "?") onHelp(true);
      else if (event.key === "j") step(1);
      else if (event.key === "k") step(-1);
    };
    document.addEventListener("keydown", press);
    return () => document.removeEventListener("keydown", press);
  }, [onGo, onHelp]);
  if (!help) return null;
  return (
    <Dialog title="Keys" onClose={() => onHelp(false)}>
      <dl class="keys">
        {KEYS.map(([keys, what]) => (
          <>
            <dt>
              {keys.map((key) => (
                <>
                  <kbd>{key}</kbd>{" "}
                </>
              ))}
            </dt>
            <dd>{what}</dd>
          </>
        ))}
      </dl>
      <footer>
        <button type="button" class="main" onClick={() => onHelp(false)}>
          Close
        </button>
      </footer>
    </Dialog>
  );
}
