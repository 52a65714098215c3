// What `/v1` answers, as far as the console looks at it.

export interface Cluster {
  cluster_id: string;
  version: string;
  brokers: number;
  topics: number;
  partitions: number;
  under_replicated_partitions: number;
  offline_partitions: number;
}

export interface Broker {
  id: number;
  listeners: { name: string; host: string; port: number }[];
  rack?: string;
  fenced: boolean;
  disk_ailing: boolean;
  leaders: number;
  replicas: number;
}

export interface Config {
  name: string;
  value: string | null;
  source: "topic" | "group" | "broker" | "cluster" | "start" | "default";
  read_only: boolean;
  sensitive: boolean;
  documentation: string;
}

export interface Partition {
  partition: number;
  leader: number | null;
  leader_epoch: number;
  replicas: number[];
  isr: number[];
  log_start_offset?: number;
  last_stable_offset?: number;
  high_watermark?: number;
  log_end_offset?: number;
  size_bytes?: number;
  failed?: string;
}

export interface Topic {
  name: string;
  id: string;
  partitions: number;
  replication_factor: number;
  internal: boolean;
  size_bytes: number;
  configs: Record<string, string>;
  partition_list: Partition[];
}

/** `/readyz?verbose` */
export interface Ready {
  ready: boolean;
  reasons: string[];
  findings: { kind: string; topic?: string; partition?: number; file?: string; reason: string }[];
}

/** `/v1/stats`: what the node counts, and what it saw at its last look. */
export interface Stats {
  /** ms since 1970; 0 before the first look. */
  at: number;
  node: Record<string, number>;
  disk?: { free_bytes: number; total_bytes: number };
  size_bytes: number;
  groups: number;
  read_only: boolean;
}

export interface TopicStats {
  name: string;
  partitions: number;
  replication_factor: number;
  internal: boolean;
  under_replicated: number;
  offline: number;
  records: number;
  size_bytes: number;
  /** Records a second; null before two looks. */
  rate: number | null;
  retention_ms: number | null;
  compacted: boolean;
  /** The last rates, oldest first; null where there was no look. */
  trend: (number | null)[];
}

export interface TopicsPage {
  topics: TopicStats[];
  /** How many fit the filter. */
  total: number;
}

export interface GroupStats {
  group: string;
  state: string;
  type: string;
  members: number;
  topics: number;
  lag: number;
  trend: (number | null)[];
}

export interface GroupsPage {
  groups: GroupStats[];
  /** How many fit the filter. */
  total: number;
}

/** `/v1/history/…` */
export interface History {
  /** When the last value was taken, ms since 1970. */
  end_ms: number;
  step_ms: number;
  series: Record<string, (number | null)[]>;
}

/** A key, a value or a header's value: text, bytes that aren't text, or nothing. */
export type Bytes = string | { base64: string } | null;

/** A record; numbers of 64 bits come as text. */
export interface LogRecord {
  partition: number;
  offset: string;
  timestamp: string;
  key: Bytes;
  value: Bytes;
  headers: { name: string; value: Bytes }[];
  leader_epoch: number;
}

/** `GET /v1/topics/{t}/records` */
export interface RecordsPage {
  records: LogRecord[];
  /** To read on with, towards the end: `0:12,1:40`. */
  next: string;
  /** To read what is before. */
  first: string;
  /** Nothing is before. */
  at_start: boolean;
  /** Nothing is behind, yet. */
  at_end: boolean;
}

export interface Member {
  member_id: string;
  instance_id?: string | null;
  client_id: string;
  host: string;
  assignment: { topic: string; partition: number }[];
}

/** `/v1/groups/{g}` */
export interface GroupDetail {
  group: string;
  state: string;
  protocol: string;
  generation: number;
  members: Member[];
}

/** `/v1/groups/{g}/lag` */
export interface GroupLag {
  /** Partitions without a commit count whole. */
  total: number;
  partitions: LagRow[];
}

export interface LagRow {
  topic: string;
  partition: number;
  committed: number | null;
  high_watermark: number | null;
  log_start_offset: number | null;
  lag: number | null;
  /** How long the first record waits that isn't committed. */
  seconds: number | null;
  /** Seconds until retention takes it. */
  time_to_loss: number | null;
  /** Records that it took already. */
  lost: number;
  member: string | null;
}

/** `/v1/history/groups/{g}`: also what changed in the group. */
export interface GroupHistory extends History {
  events: GroupEvent[];
}

export interface GroupEvent {
  at: number;
  state: string;
  generation: number;
  members: number;
  joined: string[];
  left: string[];
}

export interface Transaction {
  transactional_id: string;
  producer_id: number;
  producer_epoch: number;
  state: string;
  started_ms: number | null;
  timeout_ms: number;
  partitions: { topic: string; partition: number }[];
}
