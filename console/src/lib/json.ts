// JSON as it was written: laid out again without ever becoming numbers, since a browser's own end at 2^53.

export type Kind = "key" | "string" | "number" | "word" | "mark";

export interface Token {
  kind: Kind;
  text: string;
}

const TOKEN = /\s*("(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null|[{}[\],:])/y;

/** The tokens of a JSON text in order; null when it isn't JSON. */
export function tokens(text: string): Token[] | null {
  const out: Token[] = [];
  const open: string[] = [];
  // What may come: a value, a key, a colon behind it, or what stands between values.
  let wants: "value" | "first" | "key" | "colon" | "next" | "end" = "value";
  TOKEN.lastIndex = 0;
  for (;;) {
    const at = TOKEN.lastIndex;
    const match = TOKEN.exec(text);
    if (!match) {
      return wants === "end" && text.slice(at).trim() === "" ? out : null;
    }
    const token = match[1] ?? "";
    const after = open.length ? "next" : "end";
    if (token === "{" || token === "[") {
      if (wants !== "value" && !(wants === "first" && open.at(-1) === "[")) return null;
      open.push(token);
      wants = "first";
      out.push({ kind: "mark", text: token });
    } else if (token === "}" || token === "]") {
      const begin = token === "}" ? "{" : "[";
      if (open.pop() !== begin || (wants !== "first" && wants !== "next")) return null;
      wants = open.length ? "next" : "end";
      out.push({ kind: "mark", text: token });
    } else if (token === ",") {
      if (wants !== "next") return null;
      wants = open.at(-1) === "{" ? "key" : "value";
      out.push({ kind: "mark", text: token });
    } else if (token === ":") {
      if (wants !== "colon") return null;
      wants = "value";
      out.push({ kind: "mark", text: token });
    } else {
      const named = open.at(-1) === "{" && (wants === "first" || wants === "key");
      if (named) {
        if (!token.startsWith('"')) return null;
        wants = "colon";
        out.push({ kind: "key", text: token });
        continue;
      }
      if (wants !== "value" && !(wants === "first" && open.at(-1) === "[")) return null;
      wants = after;
      const kind = token.startsWith('"') ? "string" : /^[tfn]/.test(token) ? "word" : "number";
      out.push({ kind, text: token });
    }
  }
}

/** With line breaks and indentation; the tokens themselves stay as they are. */
export function layout(list: Token[]): Token[] {
  const out: Token[] = [];
  let depth = 0;
  const put = (kind: Kind, text: string) => out.push({ kind, text });
  const line = () => put("mark", `\n${"  ".repeat(depth)}`);
  list.forEach((token, n) => {
    const before = list[n - 1]?.text;
    const empty = (token.text === "}" && before === "{") || (token.text === "]" && before === "[");
    if (token.kind === "mark" && (token.text === "}" || token.text === "]")) {
      depth -= 1;
      if (!empty) line();
      put("mark", token.text);
    } else if (token.kind === "mark" && (token.text === "{" || token.text === "[")) {
      put("mark", token.text);
      depth += 1;
      const next = list[n + 1];
      const closes = next?.kind === "mark" && (next.text === "}" || next.text === "]");
      if (!closes) line();
    } else if (token.kind === "mark" && token.text === ",") {
      put("mark", ",");
      line();
    } else if (token.kind === "mark" && token.text === ":") {
      put("mark", ": ");
    } else {
      put(token.kind, token.text);
    }
  });
  return out;
}
