import { describe, expect, it } from "vitest";
import { bytes, clock, count, duration, percent, short } from "./format";

const plain = (text: string) => text.replaceAll("\u202f", " ");

describe("numbers", () => {
  it("are exact while they fit, then short", () => {
    expect([0, 7, 9_999, 10_000, 12_345, 999_949, 999_960, 1_250_000, -42_000].map((n) => plain(short(n)))).toEqual([
      "0", "7", "9,999", "10 k", "12 k", "1.0 M", "1.0 M", "1.3 M", "−42 k",
    ]);
    expect(count(1234567)).toBe("1,234,567");
    expect(short(null)).toBe("–");
  });
  it("of bytes carry their unit", () => {
    expect([0, 512, 1500, 15_000, 3_400_000_000].map((n) => plain(bytes(n)))).toEqual([
      "0 B", "512 B", "1.5 kB", "15 kB", "3.4 GB",
    ]);
  });
  it("of shares never hide a small one", () => {
    expect([percent(0, 10), percent(1, 1000), percent(1, 3), percent(1, 0)]).toEqual(["0 %", "<1 %", "33 %", "–"]);
  });
});

describe("times", () => {
  it("are told in two units at most", () => {
    expect([0, 999, 1500, 59_600, 61_000, 3_600_000, 5_400_000, 604_800_000, 694_800_000, -1].map(duration)).toEqual([
      "0 ms", "999 ms", "1.5 s", "1 min", "1 min 1 s", "1 h", "1 h 30 min", "7 d", "8 d 1 h", "forever",
    ]);
  });
  it("have a date only on other days", () => {
    const now = new Date(2026, 0, 31, 18, 0, 0).getTime();
    expect(clock(new Date(2026, 0, 31, 9, 5, 7, 45).getTime(), now)).toBe("09:05:07.045");
    expect(clock(new Date(2026, 0, 30, 9, 5, 7, 45).getTime(), now)).toBe("2026-01-30 09:05:07.045");
  });
});
