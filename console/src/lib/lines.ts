// A stream of JSON, a value a line.

/** Cuts what comes in into lines; the last one may end without a line's end. */
export class Lines {
  private rest = "";

  add(text: string): string[] {
    const parts = (this.rest + text).split("\n");
    this.rest = parts.pop() ?? "";
    return parts.filter((part) => part.trim() !== "");
  }

  end(): string[] {
    const last = this.rest;
    this.rest = "";
    return last.trim() === "" ? [] : [last];
  }
}

export async function readLines(response: Response, each: (value: unknown) => void): Promise<void> {
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
  if (!reader) return;
  const lines = new Lines();
  for (;;) {
    const { done, value } = await reader.read();
    for (const line of done ? lines.end() : lines.add(value)) each(JSON.parse(line));
    if (done) return;
  }
}
