//! Connections that no client library would make.

use std::io::{Read, Write};
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
    let place = |partition| Place {
        partition,
        offset: 0,
    };
    let places: Vec<Place> = (0..partitions).map(place).collect();
    ask(socket, topic, &places, most)
}

/// Where to read from.
struct Place {
    partition: u32,
    offset: u64,
}

fn ask(socket: &mut TcpStream, topic: &str, places: &[Place], most: u32) -> std::io::Result<()> {
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
    body.extend((places.len() as u32).to_be_bytes());
    for place in places {
        body.extend(place.partition.to_be_bytes());
        body.extend(place.offset.to_be_bytes());
        body.extend(most.to_be_bytes());
    }
    socket.write_all(&(body.len() as u32).to_be_bytes())?;
    socket.write_all(&body)
}

/// The error code with which the first partition is answered when its records from `offset` on are asked for.
pub(crate) fn fetch_error(
    port: u16,
    topic: &str,
    partition: i32,
    offset: i64,
) -> std::io::Result<i16> {
    let mut socket = connect(port)?;
    socket.set_read_timeout(Some(Duration::from_secs(5)))?;
    let place = Place {
        partition: partition as u32,
        offset: offset as u64,
    };
    ask(&mut socket, topic, &[place], 1 << 20)?;
    // Length, correlation id, throttle time, one topic, its name, one partition, its number.
    let before = 4 + 4 + 4 + 4 + 2 + topic.len() + 4 + 4;
    let mut head = vec![0; before + 2];
    socket.read_exact(&mut head)?;
    Ok(i16::from_be_bytes([head[before], head[before + 1]]))
}
