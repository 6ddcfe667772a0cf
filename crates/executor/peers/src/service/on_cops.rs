//! The service on cops-executor, with the sockets of `async-io`.

use std::future::Future;
use std::io;
use std::net::{TcpListener, TcpStream};

use async_io::Async;
use cops_executor::{Handle, Priority, Runtime, yield_now};
use futures_lite::io::{AsyncReadExt, AsyncWriteExt};

use super::message::Class;
use super::server::{self, Platform};

#[derive(Clone, Copy)]
struct OnCops(Handle);

impl server::Stream for Async<TcpStream> {
    async fn read_exact(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        AsyncReadExt::read_exact(self, buffer).await
    }

    async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        AsyncWriteExt::write_all(self, bytes).await
    }
}

impl Platform for OnCops {
    type Stream = Async<TcpStream>;

    fn spawn_greeting(self, stream: Self::Stream) {
        drop(self.0.spawn_at(server::greet(self, stream), Priority::MOST_URGENT));
    }

    fn spawn_serving(self, class: Class, stream: Self::Stream) {
        let level = match class {
            Class::Interactive => 8,
            Class::Batch => 48,
        };
        drop(self.0.spawn_at(server::serve::<Self>(stream), Priority::saturating(level)));
    }

    fn yield_now() -> impl Future<Output = ()> + Send {
        yield_now()
    }
}

/// Serves on `listener` until the process ends.
pub fn run(listener: TcpListener, workers: u32) -> io::Result<()> {
    let runtime = Runtime::new(workers).map_err(io::Error::other)?;
    let platform = OnCops(runtime.handle());
    let listener = Async::new(listener)?;
    let accepting = runtime.spawn_at(
        async move {
            loop {
                let (stream, _) = listener.accept().await?;
                stream.get_ref().set_nodelay(true)?;
                platform.spawn_greeting(stream);
            }
        },
        Priority::MOST_URGENT,
    );
    runtime.block_on(accepting).map_err(io::Error::other)?
}
