import { describe, expect, it } from "vitest";
import { newestFirst, pagePath, searchBody, tailPath, viewOf } from "./view";

const view = (query: string) => viewOf(new URLSearchParams(query));

describe("a view of records", () => {
  it("is the newest of all partitions unless its address says more", () => {
    expect(pagePath("a/b", view(""))).toBe("/v1/topics/a%2Fb/records?offset=-100&limit=100&int64=string");
    expect(newestFirst(view(""))).toBe(true);
    expect(newestFirst(view("from=start"))).toBe(false);
  });
  it("turns pages by positions", () => {
    expect(pagePath("t", view("partition=3&from=start&after=3%3A100"))).toBe(
      "/v1/topics/t/records?cursor=3%3A100&partitions=3&limit=100&int64=string",
    );
    const back = view("before=0%3A5%2C1%3A9");
    expect(pagePath("t", back)).toContain("before=0%3A5%2C1%3A9");
    expect(newestFirst(back)).toBe(true);
  });
  it("tails with its filter from where it was paused", () => {
    expect(tailPath("t", view("live=1&q=a%3Db&in=header"), "")).toBe("/v1/topics/t/records?offset=end&int64=string&header=a%3Db");
    expect(tailPath("t", view("live=1"), "0:7")).toBe("/v1/topics/t/records?cursor=0%3A7&int64=string");
  });
  it("searches from the start when only the newest were shown", () => {
    expect(searchBody(view("q=x"))).toMatchObject({ where: { contains: "x" }, from: "start" });
    expect(searchBody(view("q=x&in=key_is&from=time:2026-01-01&partition=2"))).toMatchObject({
      where: { key_eq: "x" }, from: "time:2026-01-01", partitions: [2],
    });
    expect(view("in=nonsense").field).toBe("any");
  });
});
