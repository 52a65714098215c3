// Time series. The newest value stands in the legend, so that nobody has to aim at a line; a sentence tells screen readers.

import { useEffect, useId, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { clock } from "../lib/format";
import type { History } from "../lib/types";
import { useSettings } from "../lib/settings";

export interface Line {
  name: string;
  label: string;
  /** Drawn downwards from the zero line, like what flows out. */
  below?: boolean;
  second?: boolean;
}

function colour(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

interface Props {
  history: History | undefined;
  lines: Line[];
  format: (value: number) => string;
  height?: number;
  title: string;
}

/** The columns as uPlot wants them; times in seconds. */
function columns(history: History, lines: Line[]): uPlot.AlignedData {
  const length = Math.max(0, ...Object.values(history.series).map((s) => s.length));
  const first = history.end_ms - (length - 1) * history.step_ms;
  const times = Array.from({ length }, (_, n) => (first + n * history.step_ms) / 1000);
  const values = lines.map((line) => {
    const series = history.series[line.name] ?? [];
    return line.below ? series.map((v) => (v === null ? null : -v)) : series;
  });
  return [times, ...values] as uPlot.AlignedData;
}

export function Plot({ history, lines, format, height = 190, title }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot>(null);
  const [at, setAt] = useState<number | null>(null);
  const { theme } = useSettings();
  const look = document.documentElement.dataset.theme;
  const id = useId();
  const shape = lines.map((line) => line.name).join();
  const formatted = useRef(format);
  formatted.current = format;

  useEffect(() => {
    const host = box.current;
    if (!host) return;
    const soft = colour("--soft");
    const axis = {
      stroke: soft,
      font: `11.5px Atkinson, sans-serif`,
      grid: { stroke: colour("--line"), width: 1 },
      ticks: { show: false },
      gap: 6,
    };
    const options: uPlot.Options = {
      width: host.clientWidth,
      height,
      padding: [10, 14, 0, 0],
      legend: { show: false },
      cursor: { y: false, points: { size: 7 }, drag: { x: false, y: false } },
      scales: {
        y: {
          range: (_, low, high) => {
            const top = Math.max(high || 0, lines.some((l) => !l.below) && !(high > 0) ? 1 : 0);
            const bottom = Math.min(low || 0, 0);
            return [bottom * 1.08, Math.max(top * 1.08, 0.0001)];
          },
        },
      },
      axes: [
        {
          ...axis,
          grid: { show: false },
          size: 26,
          space: 90,
          values: (_, splits, __, ___, step) =>
            splits.map((s) => {
              const d = new Date(s * 1000);
              const time = `${String(d.getHours()).padStart(2, "0")}:${String(d.getMinutes()).padStart(2, "0")}`;
              if (step >= 86_400) return d.toLocaleDateString("en", { day: "numeric", month: "short" });
              return step < 60 ? `${time}:${String(d.getSeconds()).padStart(2, "0")}` : time;
            }),
        },
        { ...axis, size: 62, space: 34, values: (_, splits) => splits.map((v) => formatted.current(Math.abs(v))) },
      ],
      series: [
        {},
        ...lines.map((line) => ({
          label: line.label,
          stroke: colour(line.second ? "--ochre" : "--water"),
          fill: colour(line.second ? "--ochre-soft" : "--water-soft") + "99",
          width: 1.5,
          points: { show: false },
          spanGaps: false,
        })),
      ],
      hooks: { setCursor: [(u) => setAt(u.cursor.idx ?? null)] },
    };
    const made = new uPlot(options, [[], ...lines.map(() => [])] as uPlot.AlignedData, host);
    plot.current = made;
    const watch = new ResizeObserver(() => made.setSize({ width: host.clientWidth, height }));
    watch.observe(host);
    return () => {
      watch.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [shape, height, look, theme]);

  useEffect(() => {
    if (history && plot.current) plot.current.setData(columns(history, lines));
  }, [history, shape, look, theme]);

  const length = history ? Math.max(0, ...Object.values(history.series).map((s) => s.length)) : 0;
  const index = at !== null && at < length ? at : length - 1;
  const value = (line: Line) => history?.series[line.name]?.[index] ?? null;
  const known = lines.some((line) => history?.series[line.name]?.some((v) => v !== null));
  const when = history && length ? history.end_ms - (length - 1 - index) * history.step_ms : 0;
  return (
    <figure class="plot" aria-labelledby={id}>
      <figcaption class="legend">
        <span class="out" id={id}>
          {title}
          {". "}
          {lines.map((line) => {
            const values = (history?.series[line.name] ?? []).filter((v) => v !== null);
            return values.length
              ? `${line.label}: now ${format(values.at(-1) ?? 0)}, at most ${format(Math.max(...values))}. `
              : "";
          })}
        </span>
        {lines.map((line) => {
          const v = value(line);
          return (
            <span key={line.name} aria-hidden="true">
              <i class={line.second ? "second" : ""} />
              {line.label} <b>{v === null ? "–" : format(v)}</b>
            </span>
          );
        })}
        {at !== null && when > 0 && (
          <span class="when" aria-hidden="true">
            {clock(when).replace(/\.\d+$/, "")}
          </span>
        )}
      </figcaption>
      <div ref={box} aria-hidden="true" />
      {history && !known && <div class="none">The first values come within twenty seconds.</div>}
    </figure>
  );
}

/** A line of a few values in a table; the row says them in numbers. */
export function Spark({ values, lag }: { values: (number | null)[]; lag?: boolean }) {
  const most = Math.max(0, ...values.map((v) => v ?? 0));
  if (values.filter((v) => v !== null).length < 2) return <span class="dim">–</span>;
  const x = (n: number) => ((n / Math.max(1, values.length - 1)) * 96).toFixed(1);
  const y = (v: number) => (most > 0 ? 18.5 - (v / most) * 16 : 18.5).toFixed(1);
  let path = "";
  let area = "";
  let from = "";
  let last = "";
  values.forEach((v, n) => {
    if (v === null) return;
    const joined = n > 0 && values[n - 1] !== null;
    if (!joined && from) area += `L${last} 20L${from} 20Z`;
    if (!joined) from = x(n);
    last = x(n);
    path += `${joined ? "L" : "M"}${x(n)} ${y(v)}`;
    area += `${joined ? "L" : "M"}${x(n)} ${y(v)}`;
  });
  area += `L${last} 20L${from} 20Z`;
  return (
    <svg class={`spark ${lag ? "lag" : ""}`} viewBox="0 0 96 20" preserveAspectRatio="none" aria-hidden="true">
      {most > 0 && <path class="fill" d={area} />}
      <path d={path} />
    </svg>
  );
}
