// What all pages know of the cluster.

import { createContext } from "preact";
import { useContext } from "preact/hooks";
import type { Cluster, Stats } from "./types";

export interface Frame {
  cluster?: Cluster;
  stats?: Stats;
  /** `host:port` of a Kafka listener, for commands to copy. */
  kafka: string;
  /** Nothing may be changed: the server says so, or this reader does. */
  locked: boolean;
}

export const FrameContext = createContext<Frame>({ kafka: "localhost:9092", locked: true });
export const useFrame = () => useContext(FrameContext);
