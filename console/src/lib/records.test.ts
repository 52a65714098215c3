import { describe, expect, it } from "vitest";
import { layout, tokens } from "./json";
import { hex, line, produceCommand, readCommands, shell, size, viewCommands } from "./records";
import { parse, to } from "./router";
import type { LogRecord } from "./types";

const where = { kafka: "localhost:9092", http: "http://localhost:8082", topic: "it's/a topic" };
const record: LogRecord = {
  partition: 2, offset: "9007199254740993", timestamp: "0", key: "k", value: null, headers: [], leader_epoch: 0,
};

describe("JSON", () => {
  const laid = (text: string) => layout(tokens(text) ?? []).map((t) => t.text).join("");
  it("keeps every digit", () => {
    expect(laid('{"a":9007199254740993.10,"b":[1e400,{}],"c":[]}')).toBe(
      '{\n  "a": 9007199254740993.10,\n  "b": [\n    1e400,\n    {}\n  ],\n  "c": []\n}',
    );
  });
  it("says the same as it was", () => {
    const text = '{"k\\u00e9y":["{",":",null,true,-0.5],"n":{"m":{}}}';
    expect(JSON.parse(laid(text))).toEqual(JSON.parse(text));
  });
  it("is refused where it isn't JSON", () => {
    for (const text of ["", "{", "{]", "[1,]", '{"a"}', '{"a":1,}', "01", "1 2", "[1}", "hello", '{1:2}', "tru", '"a\nb"', "[,1]"]) {
      expect(tokens(text), text).toBeNull();
    }
    for (const text of ["1", '"a"', "null", " [ ] ", '{"a":{"b":[[]]}}\n']) {
      expect(tokens(text), text).not.toBeNull();
    }
  });
});

describe("bytes", () => {
  it("have a size without being decoded", () => {
    for (const text of ["", "a", "ab", "abc", "grün", "😀"]) {
      const raw = new TextEncoder().encode(text);
      expect(size(text)).toBe(raw.length);
      expect(size({ base64: btoa(String.fromCharCode(...raw)) })).toBe(raw.length);
    }
    expect(size(null)).toBe(0);
  });
  it("hide nothing on a line", () => {
    expect(line("a\u0000b\nc\u007f")).toBe("a␀b␊c␡");
    expect(line({ base64: btoa("\u0000\u00ff") })).toBe("0x00ff");
  });
  it("stand in rows of sixteen", () => {
    const rows = hex(Uint8Array.from({ length: 17 }, (_, n) => n + 0x41)).split("\n");
    expect(rows[0]).toBe("00000000  41 42 43 44 45 46 47 48  49 4a 4b 4c 4d 4e 4f 50  ABCDEFGHIJKLMNOP");
    expect(rows[1]).toBe(`00000010  51${" ".repeat(46)}  Q`);
  });
});

describe("commands", () => {
  it("quote what a shell would look at", () => {
    expect(shell("orders-1.x")).toBe("orders-1.x");
    expect(shell("it's $HOME")).toBe("'it'\\''s $HOME'");
    expect(shell("")).toBe("''");
  });
  it("read one record by three tools", () => {
    const [kcat, curl, own] = readCommands(where, record);
    expect(kcat?.[1]).toContain("-t 'it'\\''s/a topic' -p 2 -o 9007199254740993 -c 1");
    expect(curl?.[1]).toBe(
      `curl -sS 'http://localhost:8082/v1/topics/it'\\''s%2Fa%20topic/partitions/2?offset=9007199254740993&limit=1'`,
    );
    expect(own?.[1]).toContain("--from 9007199254740993 -n 1");
  });
  it("read on from a time", () => {
    const [kcat, curl, own] = viewCommands(where, "0", "time:2026-01-01T00:00:00Z");
    expect(kcat?.[1]).toContain("-o s@1767225600000 -e");
    expect(curl?.[1]).toContain("offset=time%3A2026-01-01T00%3A00%3A00Z");
    expect(own?.[1]).toContain("--from 2026-01-01T00:00:00Z");
  });
  it("tell null and the word apart", () => {
    const draft = { key: null, value: "null", headers: [{ name: "h", value: { base64: "AA==" } }], partition: 0 };
    expect(produceCommand(where, draft)).toContain(
      `{"records":[{"key":null,"value":"null","headers":[{"name":"h","value":{"base64":"AA=="}}],"partition":0}]}`,
    );
  });
});

describe("addresses", () => {
  it("take names with any character there and back", () => {
    for (const name of ["a/b", "100%", "ü:x", "a b?c#d"]) {
      const url = new URL(to(["groups", name], { tab: "lag", none: undefined }), "http://x");
      const place = parse(url.pathname, url.search);
      expect(place.path).toEqual(["groups", name]);
      expect(place.query.get("tab")).toBe("lag");
    }
    expect(parse("/console/", "").path).toEqual([]);
    expect(parse("/console/topics/%zz", "").path).toEqual(["topics", "%zz"]);
  });
});
