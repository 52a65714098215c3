use super::super::tests::PLENTY;
use super::super::{Batch, ProduceError, validate_produce};
use super::*;

#[test]
fn transaction_markers_read_back() {
    for committed in [true, false] {
        let marker = EndTxnMarker {
            committed,
            coordinator_epoch: 12,
        };
        let bytes = marker.batch(ProducerId(5), ProducerEpoch(3), 1000);
        let batch = Batch::parse(&bytes).unwrap();
        batch.check_crc().unwrap();
        assert!(batch.header.attributes.is_control());
        assert!(batch.header.attributes.is_transactional());
        assert_eq!(batch.header.base_sequence, Sequence::NONE);
        assert_eq!(validate_produce(&bytes).unwrap_err(), ProduceError::Control);
        let records = batch.records(PLENTY).unwrap();
        let record = records.iter_refs().next().unwrap().unwrap();
        assert_eq!(EndTxnMarker::of(&record), Ok(Some(marker)));
        assert_eq!(
            ControlType::parse(record.key.unwrap()),
            Ok(marker.control_type())
        );
    }
}

#[test]
fn control_records_of_other_kinds_are_no_markers() {
    for id in -1..9 {
        let kind = ControlType::from_id(id);
        assert_eq!(kind.id(), id);
        assert_eq!(ControlType::parse(&kind.key()), Ok(kind));
        let is_marker = id == 0 || id == 1;
        let marker = EndTxnMarker::parse(Some(&kind.key()), Some(&[0, 0, 0, 0, 0, 9]));
        assert_eq!(marker.map(|m| m.is_some()), Ok(is_marker));
    }
    // A later version appends fields.
    let later = EndTxnMarker::parse(Some(&[0, 1, 0, 1, 7]), Some(&[0, 1, 0, 0, 0, 9, 7]));
    assert_eq!(later.unwrap().unwrap().coordinator_epoch, 9);
    assert!(ControlType::parse(&[0, 0, 0]).is_err());
    assert!(ControlType::parse(&[0xff, 0xff, 0, 0]).is_err());
    assert!(EndTxnMarker::parse(None, None).is_err());
    assert!(EndTxnMarker::parse(Some(&[0, 0, 0, 1]), Some(&[0, 0, 0])).is_err());
}
