//! A matrix server on the host, a thread per connection: to try the load generator without
//! COPS, and to see what the client itself costs.
//! `cargo run --release -p cops-loadgen --example reference_server [ADDRESS:PORT]`

#[path = "../tests/support/mod.rs"]
mod support;

fn main() -> std::io::Result<()> {
    let address = std::env::args().nth(1).unwrap_or("127.0.0.1:9000".into());
    let server = support::start_on(std::net::TcpListener::bind(address)?, support::Fault::None);
    println!("listening on {}", server.address);
    loop {
        std::thread::park();
    }
}
