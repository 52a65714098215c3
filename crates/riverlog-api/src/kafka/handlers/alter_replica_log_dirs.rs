//! AlterReplicaLogDirs v1–v2 (KIP-113). A node has one data folder: replicas that are there already stay, other folders don't exist.

use riverlog_core::metadata::TopicRef;
use riverlog_wire::ErrorCode;
use riverlog_wire::messages::alter_replica_log_dirs_request::AlterReplicaLogDir;
use riverlog_wire::messages::alter_replica_log_dirs_response::{
    AlterReplicaLogDirPartitionResult, AlterReplicaLogDirTopicResult,
};
use riverlog_wire::messages::{AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse};

use crate::kafka::context::Context;
use crate::kafka::responder::Responder;

pub(super) fn handle(
    context: &Context<'_>,
    request: AlterReplicaLogDirsRequest,
    responder: Responder,
) {
    let here = crate::configs::log_dir(&context.door.node);
    let results = request
        .dirs
        .into_iter()
        .flat_map(|dir| move_into(context, &here, dir))
        .collect();
    responder.send(&AlterReplicaLogDirsResponse {
        throttle_time_ms: 0,
        results,
    });
}

fn move_into(
    context: &Context<'_>,
    here: &str,
    dir: AlterReplicaLogDir,
) -> Vec<AlterReplicaLogDirTopicResult> {
    let exists = dir.path == here;
    let result = |name: &str, partition_index: i32| {
        let topic = TopicRef::Name(name.to_owned());
        let found = context.door.node.partition(&topic, partition_index);
        let error_code = match found {
            _ if !exists => ErrorCode::LOG_DIR_NOT_FOUND,
            Ok(_) => ErrorCode::NONE,
            Err(error) => error,
        };
        AlterReplicaLogDirPartitionResult {
            partition_index,
            error_code,
        }
    };
    dir.topics
        .into_iter()
        .map(|topic| AlterReplicaLogDirTopicResult {
            partitions: topic
                .partitions
                .iter()
                .map(|index| result(&topic.name, *index))
                .collect(),
            topic_name: topic.name,
        })
        .collect()
}
