//! The server's process: started by the client's, on processors of its own if there are enough, and
//! ended with it.

use std::io::{self, BufRead, BufReader, Read};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::thread;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::contender::Contender;
use super::{on_cops, on_tokio};

/// The processors of the server, and those of the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The server's.
    pub server: Vec<usize>,
    /// The client's.
    pub client: Vec<usize>,
}

impl Placement {
    /// One processor for each worker of the server, and the rest for the client; if nothing is
    /// left, it has them all too.
    pub fn new(processors: &[usize], workers: u32) -> Placement {
        let (server, rest) = processors.split_at(processors.len().min(workers as usize));
        let client = if rest.is_empty() { processors } else { rest };
        Placement { server: server.to_vec(), client: client.to_vec() }
    }

    /// Whether server and client have none in common.
    pub fn is_apart(&self) -> bool {
        !self.server.iter().any(|processor| self.client.contains(processor))
    }
}

/// The processors that this process may use.
pub fn processors() -> io::Result<Vec<usize>> {
    let allowed = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|&processor| allowed.is_set(processor)).collect())
}

/// Keeps the calling thread, and those that it starts, on these.
pub fn stay_on(processors: &[usize]) -> io::Result<()> {
    let mut wanted = CpuSet::new();
    processors.iter().for_each(|&processor| wanted.set(processor));
    Ok(sched_setaffinity(None, &wanted)?)
}

/// A server that runs; dropped, it ends.
pub struct Server {
    child: Child,
    /// Where it listens.
    pub address: SocketAddr,
}

impl Server {
    /// Starts this program again, as a server.
    pub fn start(contender: Contender, workers: u32, processors: &[usize]) -> io::Result<Server> {
        let list: Vec<_> = processors.iter().map(usize::to_string).collect();
        let mut child = Command::new(std::env::current_exe()?)
            .args(["serve", contender.key(), &workers.to_string(), &list.join(",")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        if let Some(output) = child.stdout.take() {
            BufReader::new(output).read_line(&mut line)?;
        }
        match line.trim().parse() {
            Ok(port) => {
                Ok(Server { child, address: SocketAddr::from((Ipv4Addr::LOCALHOST, port)) })
            }
            Err(_) => {
                child.kill()?;
                child.wait()?;
                Err(io::Error::other("the server did not say its port"))
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What the server's process does: listens on a free port of the loopback, says which, and serves
/// until its standard input ends.
pub fn serve(contender: Contender, workers: u32, processors: &[usize]) -> io::Result<()> {
    stay_on(processors)?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    println!("{}", listener.local_addr()?.port());
    // The client's process may end without ending this one.
    thread::spawn(|| {
        let _ = io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    match contender {
        Contender::Cops => on_cops::run(listener, workers),
        Contender::Tokio => on_tokio::run(listener, workers, false),
        Contender::TokioTwice => on_tokio::run(listener, workers, true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_and_client_are_apart_where_there_is_room() {
        let placement = Placement::new(&[2, 5], 1);
        assert_eq!((&placement.server[..], &placement.client[..]), (&[2][..], &[5][..]));
        assert!(placement.is_apart());
        let placement = Placement::new(&[0, 1], 2);
        assert_eq!((&placement.server[..], &placement.client[..]), (&[0, 1][..], &[0, 1][..]));
        assert!(!placement.is_apart());
        assert_eq!(Placement::new(&[7], 4).client, [7]);
    }
}
