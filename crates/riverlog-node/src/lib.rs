//! One node without sockets: logs, rules, parked answers, jobs.
