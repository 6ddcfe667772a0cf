//! A matrix server on the host, with a thread per connection, for trying the load generator without
//! COPS and for measuring the client itself. `cargo run --release -p cops-loadgen --example
//! reference_server [ADDRESS:PORT]`

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
