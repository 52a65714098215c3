import { describe, expect, it } from "vitest";
import { Lines, readLines } from "./lines";

describe("lines", () => {
  it("come whole however the stream is cut", () => {
    const text = '{"a":1}\n\n{"b":"x"}\n{"c":3}';
    for (let size = 1; size <= text.length; size += 1) {
      const lines = new Lines();
      const out: string[] = [];
      for (let at = 0; at < text.length; at += size) out.push(...lines.add(text.slice(at, at + size)));
      out.push(...lines.end());
      expect(out, `cut into ${size}`).toEqual(['{"a":1}', '{"b":"x"}', '{"c":3}']);
    }
  });
  it("keep characters that are cut in the middle", async () => {
    const raw = new TextEncoder().encode('{"v":"grün 😀"}\n{"w":1}\n');
    const body = new ReadableStream<Uint8Array>({
      start(out) {
        for (const byte of raw) out.enqueue(Uint8Array.of(byte));
        out.close();
      },
    });
    const seen: unknown[] = [];
    await readLines(new Response(body as BodyInit), (value) => seen.push(value));
    expect(seen).toEqual([{ v: "grün 😀" }, { w: 1 }]);
  });
});
