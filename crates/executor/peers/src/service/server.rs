//! The service, the same on every runtime.

use std::future::Future;
use std::io;

use super::message::{Answer, Class, REQUEST_BYTES, Request};
use super::work::mix;

/// A connection as its runtime has it.
pub trait Stream: Send + 'static {
    /// Fills `buffer`; an error at the end of the stream.
    fn read_exact(&mut self, buffer: &mut [u8]) -> impl Future<Output = io::Result<()>> + Send;

    /// Sends all of `bytes`.
    fn write_all(&mut self, bytes: &[u8]) -> impl Future<Output = io::Result<()>> + Send;
}

/// What the service needs of a runtime. Everything that differs between the contenders is here.
pub trait Platform: Copy + Send + Sync + 'static {
    /// Its connections.
    type Stream: Stream;

    /// Starts to serve a connection that has just been made, urgently.
    fn spawn_greeting(self, stream: Self::Stream);

    /// Goes on with a connection of a known class.
    fn spawn_serving(self, class: Class, stream: Self::Stream);

    /// Lets others run.
    fn yield_now() -> impl Future<Output = ()> + Send;
}

/// Learns a connection's class, and hands it on.
pub async fn greet<P: Platform>(platform: P, mut stream: P::Stream) {
    let mut byte = [0];
    if stream.read_exact(&mut byte).await.is_ok()
        && let Some(class) = Class::from_byte(byte[0])
    {
        platform.spawn_serving(class, stream);
    }
}

/// Serves a connection until the client closes it.
pub async fn serve<P: Platform>(mut stream: P::Stream) {
    let mut bytes = [0; REQUEST_BYTES];
    while stream.read_exact(&mut bytes).await.is_ok() {
        let request = Request::from_bytes(&bytes);
        let mut checksum = request.seed;
        for slice in 0..request.slices {
            if slice != 0 {
                P::yield_now().await;
            }
            checksum = mix(checksum, request.rounds);
        }
        let answer = Answer { tag: request.tag, seed: request.seed, checksum };
        if stream.write_all(&answer.to_bytes()).await.is_err() {
            break;
        }
    }
}
