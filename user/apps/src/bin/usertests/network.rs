//! TCP over loopback: one connection at a time.

use alloc::vec;
use alloc::vec::Vec;

use cops::abi::Errno;
use cops::io::{AsFd, Error, Fd, Read, Write};
use cops::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use cops::task::{self, Priority};
use cops::time::{Duration, sleep, timeout};
use cops::{accept, connect};

use crate::harness::{Failure, Outcome, errno, soon};
use crate::{check, check_equal, tests};

tests! { network:
    echo,
    addresses,
    refused,
    address_in_use,
    half_close,
    end_of_stream,
    halves_close_apart,
    shutdown_ends_a_waiting_read,
    peer_disconnects_mid_message,
    dropped_listener_resets,
    write_to_the_gone,
    accept_is_cancel_safe,
    read_is_cancel_safe,
    connect_can_be_given_up,
    macros_both_ways,
    version_6,
}

pub fn listen() -> Result<(TcpListener, SocketAddr), Failure> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_address()?;
    Ok((listener, address))
}

/// Both ends of a connection.
pub async fn pair() -> Result<(TcpStream, TcpStream), Failure> {
    let (listener, address) = listen()?;
    let client = soon("connect", TcpStream::connect(address)).await??;
    let server = soon("accept", listener.accept()).await??;
    Ok((client, server))
}

async fn read_exactly(stream: &mut impl Read<Error = Error>, expected: &[u8]) -> Outcome {
    let mut bytes = vec![0; expected.len()];
    soon("bytes to read", stream.read_exact(&mut bytes)).await??;
    check!(bytes == expected, "{bytes:?} instead of {expected:?}");
    Ok(())
}

async fn echo() -> Outcome {
    let (mut client, mut server) = pair().await?;
    for length in [1, 2, 100, 1460, 1461, 4000] {
        let message: Vec<u8> = (0..length).map(|index: u32| (index % 251) as u8).collect();
        client.write_all(&message).await?;
        read_exactly(&mut server, &message).await?;
        server.write_all(&message).await?;
        read_exactly(&mut client, &message).await?;
    }
    Ok(())
}

async fn addresses() -> Outcome {
    let (listener, address) = listen()?;
    check!(address.port() != 0, "the port is {address}");
    let client = TcpStream::connect(address).await?;
    let server = listener.accept().await?;
    check_equal!(client.peer_address()?, address, "the client's peer");
    check_equal!(server.local_address()?, address, "the server's address");
    check_equal!(server.peer_address()?, client.local_address()?, "the server's peer");
    Ok(())
}

async fn refused() -> Outcome {
    let (listener, address) = listen()?;
    drop(listener);
    for _ in 0..3 {
        let error = soon("a refusal", TcpStream::connect(address)).await?.err().and_then(errno);
        check_equal!(error, Some(Errno::ECONNREFUSED), "connecting without a listener");
    }
    Ok(())
}

async fn address_in_use() -> Outcome {
    let (listener, address) = listen()?;
    let error = TcpListener::bind(address).err().and_then(errno);
    check_equal!(error, Some(Errno::EADDRINUSE), "listening twice");
    drop(listener);
    TcpListener::bind(address)?;
    Ok(())
}

/// The client shuts its sending direction down, and still gets its answer.
async fn half_close() -> Outcome {
    let (mut client, mut server) = pair().await?;
    client.write_all(b"question").await?;
    client.shutdown(Shutdown::Write)?;
    read_exactly(&mut server, b"question").await?;
    check_equal!(soon("the end", server.read(&mut [0; 8])).await??, 0, "bytes after the end");
    server.write_all(b"answer").await?;
    read_exactly(&mut client, b"answer").await?;
    let error = client.write(b"more").await.err().and_then(errno);
    check_equal!(error, Some(Errno::EPIPE), "writing after shutdown");
    drop(server);
    check_equal!(soon("the end", client.read(&mut [0; 8])).await??, 0, "bytes after the end");
    Ok(())
}

async fn end_of_stream() -> Outcome {
    let (mut client, server) = pair().await?;
    drop(server);
    for _ in 0..3 {
        check_equal!(soon("the end", client.read(&mut [0; 8])).await??, 0, "bytes after the end");
    }
    Ok(())
}

async fn halves_close_apart() -> Outcome {
    let (client, mut server) = pair().await?;
    let (mut reader, mut writer) = client.into_split();
    writer.write_all(b"bye").await?;
    drop(writer);
    read_exactly(&mut server, b"bye").await?;
    check_equal!(soon("the end", server.read(&mut [0; 8])).await??, 0, "bytes after the end");
    server.write_all(b"still there").await?;
    read_exactly(&mut reader, b"still there").await
}

/// One half shuts down both directions: the other half, which waits for bytes, gets the end.
async fn shutdown_ends_a_waiting_read() -> Outcome {
    let (client, _server) = pair().await?;
    let (mut reader, writer) = client.into_split();
    let reading =
        task::spawn_join(async move { reader.read(&mut [0; 8]).await }, Priority::DEFAULT);
    sleep(Duration::from_millis(5)).await;
    writer.shutdown(Shutdown::Both)?;
    check_equal!(soon("the end of the read", reading).await??, Ok(0), "bytes read after shutdown");
    Ok(())
}

/// The client sends half a message and disconnects: the server gets the end, and serves the next
/// client.
async fn peer_disconnects_mid_message() -> Outcome {
    let (listener, address) = listen()?;
    for round in 0..10 {
        let mut client = TcpStream::connect(address).await?;
        let mut server = listener.accept().await?;
        client.write_all(b"half a mess").await?;
        drop(client);
        let (result, _) = soon("the end", server.fill(vec![0u8; 100], 0)).await?;
        check_equal!(result, Err(Error::UnexpectedEnd), "round {round}");
    }
    let mut client = TcpStream::connect(address).await?;
    let mut server = listener.accept().await?;
    client.write_all(b"whole").await?;
    read_exactly(&mut server, b"whole").await
}

async fn dropped_listener_resets() -> Outcome {
    let (listener, address) = listen()?;
    let mut client = TcpStream::connect(address).await?;
    drop(listener);
    let result =
        soon("the end of a connection that was not accepted", client.read(&mut [0; 8])).await?;
    check!(matches!(result, Err(Error::Kernel(Errno::ECONNRESET)) | Ok(0)), "{result:?}");
    Ok(())
}

async fn write_to_the_gone() -> Outcome {
    let (mut client, server) = pair().await?;
    client.write_all(b"never read").await?;
    sleep(Duration::from_millis(5)).await;
    drop(server);
    let writing = async {
        loop {
            if let Err(error) = client.write(&[1; 1000]).await {
                return errno(error);
            }
            sleep(Duration::from_millis(1)).await;
        }
    };
    let error = soon("an error", writing).await?;
    check!(
        matches!(error, Some(Errno::EPIPE | Errno::ECONNRESET)),
        "writing without a reader: {error:?}"
    );
    Ok(())
}

/// A connection that arrives while an accept is being cancelled is returned by the next accept.
async fn accept_is_cancel_safe() -> Outcome {
    let (listener, address) = listen()?;
    for round in 0..20 {
        let limit = Duration::from_micros(round * 100);
        check!(timeout(limit, listener.accept()).await.is_err(), "accepted no connection");
        let connecting = task::spawn_join(TcpStream::connect(address), Priority::DEFAULT);
        let mut accepted = timeout(limit, listener.accept()).await;
        while accepted.is_err() {
            accepted = timeout(Duration::from_millis(50), listener.accept()).await;
        }
        let mut server = accepted??;
        let mut client = soon("connect", connecting).await???;
        client.write_all(&[round as u8]).await?;
        read_exactly(&mut server, &[round as u8]).await?;
    }
    Ok(())
}

async fn read_is_cancel_safe() -> Outcome {
    let (mut client, mut server) = pair().await?;
    task::spawn(
        async move {
            for byte in 0..200u8 {
                if client.write_all(&[byte]).await.is_err() {
                    return;
                }
                sleep(Duration::from_micros(u64::from(byte) * 5)).await;
            }
        },
        Priority::DEFAULT,
    );
    let mut expected = 0u8;
    loop {
        let mut bytes = [0; 30];
        match timeout(Duration::from_micros(u64::from(expected) * 3), server.read(&mut bytes)).await
        {
            // With a time limit of zero, no other coroutine would ever run here.
            Err(_) => task::yield_now().await,
            Ok(Ok(0)) => break,
            Ok(count) => {
                for &byte in &bytes[..count?] {
                    check_equal!(byte, expected, "byte");
                    expected += 1;
                }
            }
        }
    }
    check_equal!(expected, 200, "bytes");
    Ok(())
}

/// A connection attempt without an answer can be cancelled, and leaves nothing behind.
async fn connect_can_be_given_up() -> Outcome {
    // Documentation addresses (RFC 5737) belong to no host.
    let connecting = TcpStream::connect((Ipv4Addr::new(192, 0, 2, 1), 9));
    if let Ok(result) = timeout(Duration::from_millis(50), connecting).await {
        check!(result.is_err(), "there was an answer");
    }
    Ok(())
}

async fn macros_both_ways() -> Outcome {
    let name = task::current().ok_or(Failure("no coroutine".into()))?;
    let (listener, address) = listen()?;
    let new_socket = || {
        crate::raw::call(cops::abi::syscall::SOCKET, [2, 1, 0]).map(|fd| Fd::from_raw(fd as i32))
    };
    let (first, second) = (new_socket()?, new_socket()?);
    check_equal!(connect!(first, address), Ok(()), "synchronous connect");
    check_equal!(connect!(second, address, name).await, Ok(()), "asynchronous connect");
    let one = accept!(listener)?;
    let two = accept!(listener, name).await?;
    check!(one.as_fd().raw() != two.as_fd().raw(), "the same connection twice");
    check_equal!(connect!(first, address).err(), Some(Errno::EISCONN), "connecting twice");
    let mut stream = TcpStream::from_fd(one);
    TcpStream::from_fd(first).write_all(b"first").await?;
    read_exactly(&mut stream, b"first").await
}

async fn version_6() -> Outcome {
    let listener = TcpListener::bind((cops::net::Ipv6Addr::LOCALHOST, 0))?;
    let address = listener.local_address()?;
    check!(address.is_ipv6(), "{address}");
    let mut client = soon("connect", TcpStream::connect(address)).await??;
    let mut server = soon("accept", listener.accept()).await??;
    client.write_all(b"six").await?;
    read_exactly(&mut server, b"six").await?;
    check_equal!(server.peer_address()?, client.local_address()?, "the server's peer");
    Ok(())
}
