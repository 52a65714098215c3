//! What the machine can do at least: the same bytes to and from plain files, with a CRC and nothing else.

use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use riverlog_wire::batch::Batch;

use crate::Result;

/// Checks the CRC of `batch` and writes it, `mib` MiB in all.
pub(crate) fn write(folder: &Path, batch: &[u8], mib: u64) -> Result<()> {
    let mut file = std::fs::File::create(folder.join("floor"))?;
    for _ in 0..(mib << 20) / batch.len() as u64 {
        // What a door does before an append; the copy stands for the frame that it comes out of.
        let copy = batch.to_vec();
        Batch::parse(&copy)?.check_crc()?;
        file.write_all(&copy)?;
    }
    Ok(())
}

/// Reads it back, 1 MiB at a time.
pub(crate) fn read(folder: &Path) -> Result<u64> {
    let mut file = std::fs::File::open(folder.join("floor"))?;
    let mut buffer = vec![0; 1 << 20];
    let mut all = 0;
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(all),
            n => all += n as u64,
        }
    }
}

/// How many times a second the disk syncs 4 KiB that overwrite a file written before.
pub(crate) fn syncs_per_second(folder: &Path, time: Duration) -> Result<f64> {
    let mut file = std::fs::File::create(folder.join("sync"))?;
    file.write_all(&vec![0; 4 << 20])?;
    file.sync_all()?;
    let block = [7; 4096];
    let began = Instant::now();
    let mut count = 0;
    while began.elapsed() < time {
        file.seek(SeekFrom::Start(count % 1024 * 4096))?;
        file.write_all(&block)?;
        file.sync_data()?;
        count += 1;
    }
    Ok(count as f64 / began.elapsed().as_secs_f64())
}
