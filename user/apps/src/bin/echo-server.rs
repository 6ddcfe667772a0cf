//! A TCP echo server: `echo-server [PORT]`; the default port is 7.
#![no_std]
#![no_main]

use cops::io::{self, Read, Write};
use cops::net::{Ipv4Addr, TcpListener, TcpStream};
use cops::task::{self, Priority};
use cops::{Arguments, println};

#[cops::main]
async fn main(mut arguments: Arguments) -> io::Result<()> {
    let port = arguments.nth(1).and_then(|text| text.parse().ok()).unwrap_or(7);
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))?;
    println!("echo-server: listening on port {port}");
    loop {
        let stream = listener.accept().await?;
        task::spawn(serve(stream), Priority::DEFAULT);
    }
}

/// Returns all received bytes until the client ends the stream or disconnects.
async fn serve(mut stream: TcpStream) {
    let mut bytes = [0; 1024];
    while let Ok(count @ 1..) = stream.read(&mut bytes).await {
        if stream.write_all(&bytes[..count]).await.is_err() {
            break;
        }
    }
}
