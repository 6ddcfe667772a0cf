//! Connections as they come.

use std::io::Result;
use std::net::{TcpListener, TcpStream};
use std::thread::sleep;
use std::time::Duration;

/// Passes each connection to `begin`. A connection that cannot be served is closed, and those that
/// cannot be accepted wait until others have ended.
pub fn each(listener: &TcpListener, mut begin: impl FnMut(TcpStream) -> Result<()>) -> Result<()> {
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                if let Err(error) = stream.set_nodelay(true).and_then(|()| begin(stream)) {
                    eprintln!("matrix: a connection is closed: {error}");
                }
            }
            Err(error) => {
                eprintln!("matrix: cannot accept: {error}");
                sleep(Duration::from_millis(10));
            }
        }
    }
}
