//! The service on tokio, with its sockets: on one runtime, or on one for each class.

use std::future::Future;
use std::io;
use std::net::TcpListener;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Handle, Runtime};

use super::message::Class;
use super::server::{self, Platform};

#[derive(Clone, Copy)]
struct OnTokio {
    interactive: &'static Runtime,
    /// The same, or another.
    batch: &'static Runtime,
}

impl server::Stream for TcpStream {
    async fn read_exact(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        AsyncReadExt::read_exact(self, buffer).await.map(|_| ())
    }

    async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        AsyncWriteExt::write_all(self, bytes).await
    }
}

/// Registers a socket with another runtime's reactor.
fn moved(stream: TcpStream, to: &Handle) -> io::Result<TcpStream> {
    let stream = stream.into_std()?;
    let _entered = to.enter();
    TcpStream::from_std(stream)
}

impl Platform for OnTokio {
    type Stream = TcpStream;

    fn spawn_greeting(self, stream: Self::Stream) {
        self.interactive.spawn(server::greet(self, stream));
    }

    fn spawn_serving(self, class: Class, stream: Self::Stream) {
        if class == Class::Interactive || std::ptr::eq(self.interactive, self.batch) {
            self.interactive.spawn(server::serve::<Self>(stream));
        } else if let Ok(stream) = moved(stream, self.batch.handle()) {
            self.batch.spawn(server::serve::<Self>(stream));
        }
    }

    fn yield_now() -> impl Future<Output = ()> + Send {
        tokio::task::yield_now()
    }
}

fn runtime(workers: u32) -> io::Result<&'static Runtime> {
    let runtime =
        Builder::new_multi_thread().worker_threads(workers as usize).enable_io().build()?;
    Ok(Box::leak(Box::new(runtime)))
}

/// Serves on `listener` until the process ends.
pub fn run(listener: TcpListener, workers: u32, a_runtime_for_each: bool) -> io::Result<()> {
    let interactive = runtime(workers)?;
    let batch = if a_runtime_for_each { runtime(workers)? } else { interactive };
    let platform = OnTokio { interactive, batch };
    listener.set_nonblocking(true)?;
    let accepting = interactive.spawn(async move {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            platform.spawn_greeting(stream);
        }
    });
    interactive.block_on(accepting).map_err(io::Error::other)?
}
