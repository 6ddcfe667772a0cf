//! A client in the same process, which checks a server: answers of several sizes over several
//! connections at once, and that an invalid message closes its connection.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread::scope;

use matrix_message::{Direction, HEADER_WORDS, Header, Operation, Side, as_bytes, as_bytes_mut};

const CONNECTIONS: u32 = 8;
/// The sides of matrices, and how many requests are sent before the first answer is read: no more
/// than sockets hold, because some servers read nothing while their answers are not read. The
/// largest matrix needs a larger buffer than the servers begin with.
const LOADS: [(u16, u32); 3] = [(1, 6), (15, 4), (40, 1)];

/// Checks the server at this address.
///
/// # Panics
/// If something is wrong.
pub fn server(address: SocketAddr) {
    scope(|scope| {
        for number in 0..CONNECTIONS {
            scope.spawn(move || right_answers(address, number));
        }
    });
    let mut stream = TcpStream::connect(address).expect("connects");
    stream.write_all(&[0xff; 16]).expect("sends");
    // An error or the end: an answer there is not.
    assert_eq!(stream.read(&mut [0; 1]).unwrap_or(0), 0, "the invalid message got an answer");
}

fn right_answers(address: SocketAddr, number: u32) {
    let mut stream = TcpStream::connect(address).expect("connects");
    stream.set_nodelay(true).expect("is a TCP socket");
    for (side, count) in LOADS {
        let side = Side::new(side).expect("is allowed");
        let requests: Vec<Vec<u64>> =
            (0..count).map(|sequence| request(side, number, sequence)).collect();
        // In two pieces of no particular size.
        let all = requests.concat();
        let (one, other) = as_bytes(&all).split_at(size_of_val(&*all) / 2 + 3);
        stream.write_all(one).expect("sends");
        stream.write_all(other).expect("sends");
        for request in &requests {
            let mut answer = vec![0; side.message_words()];
            stream.read_exact(as_bytes_mut(&mut answer)).expect("answers");
            assert!(answer == expected(side, request), "a wrong answer");
        }
    }
}

fn request(side: Side, number: u32, sequence: u32) -> Vec<u64> {
    let header = Header {
        class: 0,
        operation: Operation::MultiplyU64,
        direction: Direction::Request,
        side,
        sequence: number << 16 | sequence,
    };
    let seed = u64::from(header.sequence) + 1;
    let elements = (1..=side.elements() as u64).map(|index| seed.wrapping_mul(index << 31 | 5));
    message(header, elements)
}

/// By the definition of the product.
fn expected(side: Side, request: &[u64]) -> Vec<u64> {
    let header = Header::parse(as_bytes(request), Direction::Request).expect("is valid");
    let header = header.expect("is complete").answer();
    let (size, elements) = (usize::from(side.get()), &request[HEADER_WORDS..]);
    let of = |row: usize, column: usize| elements[row * size + column];
    let product = (0..size * size).map(|at| {
        let terms = (0..size).map(|k| of(at / size, k).wrapping_mul(of(k, at % size)));
        terms.fold(0, u64::wrapping_add)
    });
    message(header, product)
}

fn message(header: Header, elements: impl Iterator<Item = u64>) -> Vec<u64> {
    let mut words = vec![0; HEADER_WORDS];
    as_bytes_mut(&mut words).copy_from_slice(&header.encode());
    words.extend(elements);
    words
}
