//! What the fuzz targets do with their bytes. Each target is a line that calls one of these, so that a
//! finding can become a test by calling the same function.

mod files;
mod folder;
mod messages;

pub use files::{check, epochs, index, metadata, offsets, snapshot, timeindex};
pub use folder::{edit, folder, image};
pub use messages::{requests, responses};

use riverlog_wire::batch::{
    Batch, BatchBuilder, BatchError, Filtered, RecordView, batches, filter, set_log_append_time,
    validate_produce,
};
use riverlog_wire::compression::{Compression, compress, decompress};

/// The most that anything here may expand to.
const LIMIT: usize = 1 << 20;

/// Bytes in place of a fetch answer, a segment or a produce request's records.
pub fn batch(data: &[u8]) {
    if let Ok(batch) = validate_produce(data) {
        assert_eq!(batch.bytes.len(), data.len());
        assert_eq!(
            batch.header.record_count,
            batch.header.last_offset_delta + 1
        );
    }
    let mut read = 0;
    for batch in batches(data) {
        let Ok(batch) = batch else { break };
        assert_eq!(batch.bytes.len(), batch.header.size());
        read += batch.bytes.len();
        assert!(read <= data.len());
        open(&batch);

        // Past the CRC, which random changes seldom get right.
        let mut stamped = batch.bytes.to_vec();
        set_log_append_time(&mut stamped, 1_000);
        let stamped = Batch::parse(&stamped).expect("nothing that parse looks at has changed");
        assert_eq!(stamped.check_crc(), Ok(()));
        let _ = validate_produce(stamped.bytes);
    }
}

/// Bytes in place of the records of a batch whose header is right.
pub fn records(data: &[u8]) {
    let (&count, records) = data.split_first().unwrap_or((&1, &[]));
    let mut builder = BatchBuilder::new(Compression::None);
    (0..=count).for_each(|_| {
        builder.push(0, None, None, &[]);
    });
    let mut bytes = builder.build();
    bytes.truncate(riverlog_wire::batch::HEADER_LEN);
    bytes.extend_from_slice(records);
    let length = bytes.len() as i32 - 12;
    bytes[8..12].copy_from_slice(&length.to_be_bytes());
    open(&Batch::parse(&bytes).expect("the header is right"));
}

/// A codec's number and bytes that claim to be of that codec.
pub fn compression(data: &[u8]) {
    let Some((&codec, data)) = data.split_first() else {
        return;
    };
    let Some(codec) = Compression::from_bits(i16::from(codec)) else {
        return;
    };
    let mut out = vec![7];
    match decompress(codec, data, LIMIT, &mut out) {
        Ok(()) => assert!(out.len() <= 1 + LIMIT),
        Err(_) => assert_eq!(out, [7]),
    }

    let mut packed = Vec::new();
    compress(codec, data, &mut packed).expect("any bytes can be compressed");
    let mut again = Vec::new();
    decompress(codec, &packed, data.len(), &mut again).expect("what was just compressed");
    assert_eq!(again, data);
}

/// Reads and filters a batch's records; those that can be read are the same after being built anew.
fn open(batch: &Batch<'_>) {
    let Ok(records) = batch.records(LIMIT) else {
        assert!(filter(batch, LIMIT, None, |_| true).is_err());
        return;
    };
    assert!(records.size() <= LIMIT);
    let views: Result<Vec<RecordView>, BatchError> = records.iter().collect();
    let Ok(views) = views else {
        assert!(filter(batch, LIMIT, None, |_| true).is_err());
        return;
    };
    assert_eq!(views.len(), batch.header.record_count as usize);

    let mut builder = BatchBuilder::new(Compression::None);
    for view in &views {
        let headers: Vec<_> = view.headers.refs().iter().collect();
        let (key, value) = (view.key.as_deref(), view.value.as_deref());
        builder.push(view.timestamp, key, value, &headers);
    }
    let built = builder.build();
    if !views.is_empty() {
        let again = Batch::parse(&built).expect("what was just built");
        let again = again.records(LIMIT * 2).expect("what was just built");
        for (new, old) in again.iter().zip(&views) {
            let new = new.expect("what was just built");
            assert_eq!((new.key, new.value), (old.key.clone(), old.value.clone()));
            assert_eq!(
                (new.headers, new.timestamp),
                (old.headers.clone(), old.timestamp)
            );
        }
    }

    let even = |view: &RecordView| view.offset.0 % 2 == 0;
    let kept = match filter(batch, LIMIT, Some(9), |r| r.offset.0 % 2 == 0) {
        Ok(Filtered::Same) => return,
        Ok(Filtered::Batch(bytes) | Filtered::Empty(bytes)) => bytes,
        Err(error) => panic!("readable records can be filtered: {error}"),
    };
    let kept = Batch::parse(&kept).expect("what was just filtered");
    assert_eq!(kept.check_crc(), Ok(()));
    assert_eq!(kept.header.last_offset(), batch.header.last_offset());
    let kept = kept.records(LIMIT * 2).expect("what was just filtered");
    assert!(
        kept.iter()
            .map(|r| r.expect("what was just filtered"))
            .eq(views.into_iter().filter(even))
    );
}
