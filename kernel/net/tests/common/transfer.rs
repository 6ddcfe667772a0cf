//! A checked stream of bytes from one connection to another.

use cops_net::{Connection, Error};

/// A pump: sends a generated stream on one connection and checks it on the other.
pub struct Transfer {
    pub total: usize,
    pub sent: usize,
    pub received: usize,
    /// Most bytes of a write.
    pub write_bytes: usize,
}

impl Transfer {
    pub fn new(total: usize) -> Transfer {
        Transfer { total, sent: 0, received: 0, write_bytes: 1500 }
    }

    pub fn byte(index: usize) -> u8 {
        (index as u32).wrapping_mul(2_654_435_761).to_be_bytes()[0]
    }

    /// Sends and receives what is possible now. Returns `true` when everything has arrived.
    pub fn pump(&mut self, from: &Connection, to: &Connection) -> bool {
        self.push(from);
        self.pull(to);
        self.received == self.total
    }

    pub fn push(&mut self, from: &Connection) {
        while self.sent < self.total {
            let chunk: Vec<u8> =
                (self.sent..self.total.min(self.sent + self.write_bytes)).map(Self::byte).collect();
            match from.try_send(&chunk) {
                Ok(sent) => self.sent += sent,
                Err(Error::WouldBlock) => return,
                Err(error) => panic!("sending failed after {} bytes: {error}", self.sent),
            }
        }
    }

    pub fn pull(&mut self, to: &Connection) {
        let mut buffer = [0; 1000];
        while self.received < self.total {
            match to.try_receive(&mut buffer) {
                Ok(0) => panic!("the stream ended after {} of {} bytes", self.received, self.total),
                Ok(length) => {
                    for byte in &buffer[..length] {
                        assert_eq!(
                            *byte,
                            Self::byte(self.received),
                            "byte {} is wrong",
                            self.received
                        );
                        self.received += 1;
                    }
                }
                Err(Error::WouldBlock) => return,
                Err(error) => panic!("receiving failed after {} bytes: {error}", self.received),
            }
        }
    }
}
