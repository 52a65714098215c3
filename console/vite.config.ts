import { readdirSync, readFileSync } from "node:fs";
import { gzipSync } from "node:zlib";
import { defineConfig } from "vite";

/** What the built console carries of others, and under which terms; `licences.txt` goes with it. */
const carried: [string, string][] = [
  ["preact", "LICENSE"],
  ["uplot", "LICENSE"],
  ["@fontsource-variable/atkinson-hyperlegible-next", "LICENSE"],
  ["@fontsource/atkinson-hyperlegible-mono", "LICENSE"],
];

/** What all files may have in gzip: the console has to be there at once, also over a slow line. */
const MOST_BYTES = 250_000;

/** Bytes of a folder's files as a browser loads them; fonts are compressed already. */
function weigh(folder: string): number {
  return readdirSync(folder, { withFileTypes: true }).reduce((sum, entry) => {
    const path = `${folder}/${entry.name}`;
    if (entry.isDirectory()) return sum + weigh(path);
    const bytes = readFileSync(path);
    return sum + Math.min(bytes.length, gzipSync(bytes).length);
  }, 0);
}

export default defineConfig({
  base: "/console/",
  build: {
    target: "es2022",
    // An inlined font or picture would be a `data:` address, which the page's policy forbids.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
  },
  server: {
    // `npx vite` beside a running broker: its own files from here, `/v1` and the rest from there.
    proxy: Object.fromEntries(
      ["/v1", "/readyz", "/metrics"].map((path) => [path, "http://127.0.0.1:8082"]),
    ),
  },
  plugins: [
    {
      name: "licences",
      apply: "build",
      generateBundle() {
        const source = carried
          .map(([name, file]) => `${name}\n\n${readFileSync(`node_modules/${name}/${file}`, "utf8")}`)
          .join("\n\n----\n\n");
        this.emitFile({ type: "asset", fileName: "licences.txt", source });
        // The folder itself is in the repository, so that a build without the console finds it.
        this.emitFile({ type: "asset", fileName: ".gitignore", source: "*\n!.gitignore\n" });
      },
    },
    {
      name: "weight",
      apply: "build",
      closeBundle() {
        const size = weigh("dist");
        if (size > MOST_BYTES) this.error(`the console has ${size} bytes in gzip; ${MOST_BYTES} is the bound`);
        console.log(`console: ${size} bytes in gzip, of ${MOST_BYTES}`);
      },
    },
  ],
});
