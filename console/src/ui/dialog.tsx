// Dialogs: the browser's own, so that focus and Escape behave; and the one before anything is destroyed.

import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef, useState } from "preact/hooks";
import { Problem } from "../lib/api";
import { Trouble } from "./bits";

export function Dialog({
  title,
  onClose,
  children,
  wide,
}: {
  title: string;
  onClose: () => void;
  children: ComponentChildren;
  wide?: boolean;
}) {
  const dialog = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    const back = document.activeElement as HTMLElement | null;
    dialog.current?.showModal();
    return () => back?.focus?.();
  }, []);
  return (
    <dialog
      ref={dialog}
      class={wide ? "wide" : ""}
      aria-labelledby={id}
      onClose={onClose}
      onClick={(event) => {
        if (event.target === dialog.current) dialog.current?.close();
      }}
    >
      <div class="body">
        <h2 id={id}>{title}</h2>
        {children}
      </div>
    </dialog>
  );
}

/** Runs something that may fail; says why in the dialog itself. */
export function useDoing(): [boolean, Problem | undefined, (work: () => Promise<void>) => void] {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<Problem>();
  const run = async (work: () => Promise<void>) => {
    setBusy(true);
    setError(undefined);
    try {
      await work();
    } catch (why) {
      setError(why instanceof Problem ? why : new Problem(0, String(why), ""));
    } finally {
      setBusy(false);
    }
  };
  return [busy, error, run];
}

/** Asks for the name of what will be gone, typed. */
export function Destroy({
  title,
  name,
  verb,
  children,
  onClose,
  work,
}: {
  title: string;
  name: string;
  verb: string;
  children: ComponentChildren;
  onClose: () => void;
  work: () => Promise<void>;
}) {
  const [typed, setTyped] = useState("");
  const [busy, error, run] = useDoing();
  const id = useId();
  return (
    <Dialog title={title} onClose={onClose}>
      <div>{children}</div>
      {error && <Trouble error={error} />}
      <div class="row">
        <label for={id}>
          <span>
            Type <code>{name}</code> to go on
          </span>
        </label>
        <input id={id} class="mono" value={typed} autocomplete="off" spellcheck={false} onInput={(e) => setTyped(e.currentTarget.value)} />
      </div>
      <footer>
        <button type="button" onClick={onClose}>
          Keep it
        </button>
        <button type="button" class="harm" disabled={typed !== name || busy} onClick={() => run(work)}>
          {busy ? "Working…" : verb}
        </button>
      </footer>
    </Dialog>
  );
}
