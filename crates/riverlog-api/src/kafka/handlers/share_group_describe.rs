//! ShareGroupDescribe v1 (KIP-932). A group of another kind, or none, is GROUP_ID_NOT_FOUND.

use riverlog_core::groups::{GroupDescription, MemberDescription};
use riverlog_core::metadata::MetadataImage;
use riverlog_wire::ErrorCode;
use riverlog_wire::messages::share_group_describe_response::{
    Assignment, DescribedGroup, Member, TopicPartitions,
};
use riverlog_wire::messages::{ShareGroupDescribeRequest, ShareGroupDescribeResponse};

use super::operations;
use crate::kafka::context::Context;
use crate::kafka::gather::Gather;
use crate::kafka::responder::Responder;

pub(super) fn handle(
    context: &Context<'_>,
    request: ShareGroupDescribeRequest,
    responder: Responder,
) {
    let operations = operations::on_group(request.include_authorized_operations);
    let mut gather = Gather::new(move |groups| {
        responder.send(&ShareGroupDescribeResponse {
            throttle_time_ms: 0,
            groups,
        });
    });
    let image = context.door.node.image();
    for group in request.group_ids {
        let name = group.clone();
        let image = image.clone();
        let reply = gather.reply(move |answer| describe(&image, operations, name, answer));
        context.door.node.describe_group(&group, context.now, reply);
    }
    gather.seal();
}

fn describe(
    image: &MetadataImage,
    authorized_operations: i32,
    group_id: String,
    answer: Result<Option<GroupDescription>, ErrorCode>,
) -> DescribedGroup {
    let group = match answer {
        Ok(Some(group)) if group.group_type == "share" => group,
        Ok(_) => {
            let message = format!("there is no share group {group_id:?}");
            return failed(group_id, ErrorCode::GROUP_ID_NOT_FOUND, Some(message));
        }
        Err(error_code) => return failed(group_id, error_code, None),
    };
    let members = group.members.into_iter();
    DescribedGroup {
        group_id,
        group_state: group.state.to_owned(),
        group_epoch: group.generation.0,
        assignment_epoch: group.assignment_epoch,
        assignor_name: group.protocol,
        members: members.map(|m| member(image, m)).collect(),
        authorized_operations,
        ..DescribedGroup::default()
    }
}

fn failed(group_id: String, error_code: ErrorCode, message: Option<String>) -> DescribedGroup {
    DescribedGroup {
        error_code,
        error_message: message,
        group_id,
        ..DescribedGroup::default()
    }
}

/// Topics that are gone are left out: they have no name.
fn member(image: &MetadataImage, member: MemberDescription) -> Member {
    let assigned = member.assigned.into_iter();
    let named = assigned.filter_map(|(topic_id, partitions)| {
        Some(TopicPartitions {
            topic_id,
            topic_name: image.topics.get(&topic_id)?.name.to_string(),
            partitions,
        })
    });
    Member {
        member_id: member.member,
        rack_id: member.rack,
        member_epoch: member.member_epoch,
        client_id: member.client_id,
        client_host: member.client_host,
        subscribed_topic_names: member.subscribed_topics,
        assignment: Assignment {
            topic_partitions: named.collect(),
        },
    }
}
