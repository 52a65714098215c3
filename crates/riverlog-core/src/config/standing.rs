//! What a broker key given by a user is: one of the table's, one that only Kafka has, or a mistake.

use super::{Key, Scope, key, meant};

/// What a broker key is.
#[derive(Clone, Copy, Debug)]
pub enum Standing {
    /// In the table.
    Known(&'static Key),
    /// Kafka has it; here it is accepted without effect, with one warning that says why.
    Ignored(&'static str),
    /// Kafka has it, and a node that dropped it silently would protect less than its owner believes. An error at start.
    Refused(&'static str),
    /// Nobody has it; the key that was probably meant. An error at start.
    Unknown(Option<&'static str>),
}

/// What a broker key of that name is, as found in a `server.properties`, an environment or a request.
pub fn standing(name: &str) -> Standing {
    if let Some(key) = key(Scope::Broker, name) {
        return Standing::Known(key);
    }
    if REFUSED.contains(&name) {
        return Standing::Refused(
            "Riverlog runs no Java classes, and a policy that isn't enforced is worse than none; take the key out",
        );
    }
    if let Some((_, why)) = IGNORED.iter().find(|(names, _)| names.contains(&name)) {
        return Standing::Ignored(why);
    }
    if let Some((_, why)) = FAMILIES.iter().find(|(prefix, _)| name.starts_with(prefix)) {
        return Standing::Ignored(why);
    }
    Standing::Unknown(meant(Scope::Broker, name))
}

const REFUSED: &[&str] = &[
    "alter.config.policy.class.name",
    "client.quota.callback.class",
    "create.topic.policy.class.name",
];

/// Families of names that are open at the end.
const FAMILIES: &[(&str, &str)] = &[
    ("confluent.", "it belongs to another distribution"),
    (
        "listener.name.",
        "it belongs to a listener with TLS or SASL, and those are refused until there are any",
    ),
    (
        "password.encoder.",
        "it protects passwords in ZooKeeper, which isn't used",
    ),
    ("rlmm.config.", "there is no tiered storage yet"),
    ("rsm.config.", "there is no tiered storage yet"),
    ("zookeeper.", "ZooKeeper isn't used"),
];

/// Kafka 4.4's broker keys that aren't in the table, and those that older releases had.
pub(super) const IGNORED: &[(&[&str], &str)] = &[
    (
        SECURITY,
        "there are no TLS, SASL or delegation tokens yet; listeners that ask for them are refused",
    ),
    (TIERING, "there is no tiered storage yet"),
    (
        CLUSTER,
        "it tunes Kafka's controllers and replication between brokers",
    ),
    (SHARE_AND_STREAMS, "nothing here depends on it"),
    (TRANSACTIONS, "it tunes Kafka's transaction coordinator"),
    (TUNING, "it tunes a part of Kafka that doesn't exist here"),
    (OLD, "Kafka itself has dropped it"),
];

#[rustfmt::skip]
const SECURITY: &[&str] = &[
    "connection.failed.authentication.delay.ms", "connections.max.reauth.ms",
    "delegation.token.expiry.check.interval.ms", "delegation.token.expiry.time.ms",
    "delegation.token.max.lifetime.ms", "delegation.token.secret.key", "principal.builder.class",
    "sasl.client.callback.handler.class", "sasl.jaas.config", "sasl.kerberos.kinit.cmd",
    "sasl.kerberos.min.time.before.relogin", "sasl.kerberos.principal.to.local.rules",
    "sasl.kerberos.service.name", "sasl.kerberos.ticket.renew.jitter",
    "sasl.kerberos.ticket.renew.window.factor", "sasl.login.callback.handler.class", "sasl.login.class",
    "sasl.login.connect.timeout.ms", "sasl.login.read.timeout.ms", "sasl.login.refresh.buffer.seconds",
    "sasl.login.refresh.min.period.seconds", "sasl.login.refresh.window.factor",
    "sasl.login.refresh.window.jitter", "sasl.login.retry.backoff.max.ms", "sasl.login.retry.backoff.ms",
    "sasl.mechanism.controller.protocol", "sasl.mechanism.inter.broker.protocol",
    "sasl.oauthbearer.allow.unverified.audience", "sasl.oauthbearer.allow.unverified.issuer",
    "sasl.oauthbearer.assertion.algorithm", "sasl.oauthbearer.assertion.claim.aud",
    "sasl.oauthbearer.assertion.claim.exp.seconds", "sasl.oauthbearer.assertion.claim.iss",
    "sasl.oauthbearer.assertion.claim.jti.include", "sasl.oauthbearer.assertion.claim.nbf.seconds",
    "sasl.oauthbearer.assertion.claim.sub", "sasl.oauthbearer.assertion.file",
    "sasl.oauthbearer.assertion.private.key.file", "sasl.oauthbearer.assertion.private.key.passphrase",
    "sasl.oauthbearer.assertion.template.file", "sasl.oauthbearer.client.credentials.client.id",
    "sasl.oauthbearer.client.credentials.client.secret", "sasl.oauthbearer.clock.skew.seconds",
    "sasl.oauthbearer.expected.audience", "sasl.oauthbearer.expected.issuer",
    "sasl.oauthbearer.jwks.endpoint.refresh.ms", "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", "sasl.oauthbearer.jwks.endpoint.url",
    "sasl.oauthbearer.jwt.retriever.class", "sasl.oauthbearer.jwt.validator.class", "sasl.oauthbearer.scope",
    "sasl.oauthbearer.scope.claim.name", "sasl.oauthbearer.sub.claim.name",
    "sasl.oauthbearer.token.endpoint.url", "sasl.server.callback.handler.class", "sasl.server.max.receive.size",
    "security.providers", "ssl.allow.dn.changes", "ssl.allow.san.changes", "ssl.cipher.suites",
    "ssl.client.auth", "ssl.enabled.protocols", "ssl.endpoint.identification.algorithm",
    "ssl.engine.factory.class", "ssl.key.password", "ssl.keymanager.algorithm",
    "ssl.keystore.certificate.chain", "ssl.keystore.key", "ssl.keystore.password", "ssl.keystore.type",
    "ssl.principal.mapping.rules", "ssl.protocol", "ssl.provider", "ssl.secure.random.implementation",
    "ssl.trustmanager.algorithm", "ssl.truststore.certificates", "ssl.truststore.location",
    "ssl.truststore.password", "ssl.truststore.type",
];

#[rustfmt::skip]
const TIERING: &[&str] = &[
    "follower.fetch.last.tiered.offset.enable", "remote.fetch.max.wait.ms",
    "remote.list.offsets.request.timeout.ms", "remote.log.index.file.cache.total.size.bytes",
    "remote.log.index.file.cache.ttl.ms", "remote.log.manager.copier.thread.pool.size",
    "remote.log.manager.copy.max.bytes.per.second", "remote.log.manager.copy.quota.window.num",
    "remote.log.manager.copy.quota.window.size.seconds", "remote.log.manager.expiration.thread.pool.size",
    "remote.log.manager.fetch.max.bytes.per.second", "remote.log.manager.fetch.quota.window.num",
    "remote.log.manager.fetch.quota.window.size.seconds", "remote.log.manager.follower.thread.pool.size",
    "remote.log.manager.task.interval.ms", "remote.log.manager.task.retry.backoff.max.ms",
    "remote.log.manager.task.retry.backoff.ms", "remote.log.manager.task.retry.jitter",
    "remote.log.manager.thread.pool.size", "remote.log.metadata.custom.metadata.max.bytes",
    "remote.log.metadata.manager.class.name", "remote.log.metadata.manager.class.path",
    "remote.log.metadata.manager.impl.prefix", "remote.log.metadata.manager.listener.name",
    "remote.log.reader.max.pending.tasks", "remote.log.reader.threads", "remote.log.storage.manager.class.name",
    "remote.log.storage.manager.class.path", "remote.log.storage.manager.impl.prefix",
    "remote.log.storage.system.enable",
];

#[rustfmt::skip]
const CLUSTER: &[&str] = &[
    "alter.log.dirs.replication.quota.window.num", "alter.log.dirs.replication.quota.window.size.seconds",
    "controller.performance.always.log.threshold.ms", "controller.performance.sample.period.ms",
    "controller.quorum.append.linger.ms", "controller.quorum.auto.join.enable",
    "controller.quorum.election.backoff.max.ms", "controller.quorum.election.timeout.ms",
    "controller.quorum.fetch.max.bytes", "controller.quorum.fetch.snapshot.max.bytes",
    "controller.quorum.fetch.timeout.ms", "controller.quorum.request.timeout.ms",
    "controller.quorum.retry.backoff.ms", "controller.quota.window.num", "controller.quota.window.size.seconds",
    "controller.socket.timeout.ms", "cordoned.log.dirs", "early.start.listeners",
    "initial.broker.registration.timeout.ms", "internal.metadata.delete.delay.millis",
    "internal.metadata.log.segment.bytes", "internal.metadata.max.batch.size.in.bytes",
    "leader.imbalance.check.interval.seconds", "metadata.log.max.record.bytes.between.snapshots",
    "metadata.log.max.snapshot.interval.ms", "metadata.log.segment.bytes", "metadata.log.segment.ms",
    "metadata.max.idle.interval.ms", "metadata.max.retention.bytes", "metadata.max.retention.ms",
    "num.replica.alter.log.dirs.threads", "replica.fetch.backoff.ms", "replica.fetch.min.bytes",
    "replica.high.watermark.checkpoint.interval.ms", "replica.socket.receive.buffer.bytes",
    "replica.socket.timeout.ms", "replication.quota.window.num", "replication.quota.window.size.seconds",
    "unclean.leader.election.interval.ms", "unstable.api.versions.enable", "unstable.feature.versions.enable",
];

#[rustfmt::skip]
const SHARE_AND_STREAMS: &[&str] = &[
    "group.share.assignor.offload.enable", "group.share.assignors", "group.share.dlq.manager.class.name",
    "group.share.initialize.retry.interval.ms", "group.share.max.assignment.interval.ms",
    "group.share.min.assignment.interval.ms",
    "group.share.persister.class.name", "group.streams.assignor.offload.enable", "group.streams.assignors",
    "group.streams.max.assignment.interval.ms", "group.streams.max.warmup.replicas",
    "group.streams.min.assignment.interval.ms", "group.streams.min.task.offset.interval.ms",
    "group.streams.num.warmup.replicas", "group.streams.topology.description.plugin.class",
    "share.coordinator.append.linger.ms", "share.coordinator.cached.buffer.max.bytes",
    "share.coordinator.cold.partition.snapshot.interval.ms", "share.coordinator.load.buffer.size",
    "share.coordinator.state.topic.compression.codec",
    "share.coordinator.state.topic.min.isr",
    "share.coordinator.state.topic.prune.interval.ms", "share.coordinator.state.topic.replication.factor",
    "share.coordinator.threads",
    "share.coordinator.write.timeout.ms", "share.fetch.purgatory.purge.interval.requests",
];

#[rustfmt::skip]
const TRANSACTIONS: &[&str] = &[
    "add.partitions.to.txn.retry.backoff.max.ms", "add.partitions.to.txn.retry.backoff.ms",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms", "transaction.partition.verification.enable",
    "transaction.remove.expired.transaction.cleanup.interval.ms", "transaction.state.log.load.buffer.size",
    "transaction.two.phase.commit.enable",
];

#[rustfmt::skip]
const TUNING: &[&str] = &[
    "config.providers", "delete.records.purgatory.purge.interval.requests",
    "fetch.purgatory.purge.interval.requests", "group.consumer.assignor.offload.enable",
    "group.consumer.max.assignment.interval.ms", "group.consumer.min.assignment.interval.ms",
    "group.consumer.regex.refresh.interval.ms", "group.coordinator.append.linger.ms",
    "group.coordinator.background.threads", "group.coordinator.cached.buffer.max.bytes",
    "group.coordinator.threads", "kafka.metrics.polling.interval.secs", "kafka.metrics.reporters",
    "log.cleaner.io.buffer.load.factor", "log.cleaner.io.buffer.size", "log.dir.failure.timeout.ms",
    "log.flush.offset.checkpoint.interval.ms", "log.flush.start.offset.checkpoint.interval.ms",
    "log.initial.task.delay.ms", "metrics.num.samples", "metrics.recording.level", "metrics.sample.window.ms",
    "offsets.load.buffer.size", "producer.id.expiration.check.interval.ms",
    "producer.purgatory.purge.interval.requests", "queued.max.request.bytes", "quota.window.num",
    "quota.window.size.seconds", "server.max.startup.time.ms", "socket.connection.setup.timeout.max.ms",
    "socket.connection.setup.timeout.ms", "telemetry.max.bytes",
];

#[rustfmt::skip]
const OLD: &[&str] = &[
    "advertised.host.name", "advertised.port", "broker.id.generation.enable", "control.plane.listener.name",
    "delegation.token.master.key", "eligible.leader.replicas.enable", "group.coordinator.new.enable",
    "host.name", "inter.broker.protocol.version", "log.message.downconversion.enable",
    "log.message.format.version", "log.message.timestamp.difference.max.ms", "offsets.commit.required.acks",
    "port", "reserved.broker.max.id",
];
