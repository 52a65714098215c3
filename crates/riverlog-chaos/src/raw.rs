//! Connections that no client library would make.

use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

use crate::server::address;

/// Opens a connection; an error when the server doesn't take it.
pub(crate) fn connect(port: u16) -> std::io::Result<TcpStream> {
    let socket = TcpStream::connect_timeout(&address(port), Duration::from_secs(2))?;
    socket.set_write_timeout(Some(Duration::from_secs(2)))?;
    Ok(socket)
}

/// Asks for up to `most` bytes of each partition from its start, and doesn't read the answer.
pub(crate) fn ask_for_all(
    socket: &mut TcpStream,
    topic: &str,
    partitions: u32,
    most: u32,
) -> std::io::Result<()> {
    let mut body = Vec::new();
    // Fetch version 4, correlation id 1, no client id.
    body.extend([0, 1, 0, 4, 0, 0, 0, 1, 0xff, 0xff]);
    // A consumer; waits a second for a byte.
    body.extend((-1_i32).to_be_bytes());
    body.extend(1_000_u32.to_be_bytes());
    body.extend(1_u32.to_be_bytes());
    body.extend(most.to_be_bytes());
    // Uncommitted records; one topic.
    body.push(0);
    body.extend(1_u32.to_be_bytes());
    body.extend((topic.len() as u16).to_be_bytes());
    body.extend(topic.as_bytes());
    body.extend(partitions.to_be_bytes());
    for partition in 0..partitions {
        body.extend(partition.to_be_bytes());
        body.extend(0_u64.to_be_bytes());
        body.extend(most.to_be_bytes());
    }
    socket.write_all(&(body.len() as u32).to_be_bytes())?;
    socket.write_all(&body)
}
