//! Replies of a server that say where on the disk the data of a file are (decision 64).

use alloc::vec;
use alloc::vec::Vec;

use cops::abi::errno::CallResult;
use cops::abi::file::open;
use cops::abi::served::{
    DATA_BYTES_MAX, Place, Reply, Request, TAKES_PLACES, operation, read_value,
};
use cops::io::AsFd;
use futures_util::future::join;

use super::*;
use crate::served::by_hand::{Hand, Later, later};
use crate::served::pages::Opened;

/// `/disk/f` of a server by hand that is on the disk.
async fn opened() -> Result<Opened, Failure> {
    let path = c"/dev/fs".as_ptr().addr();
    let fd = raw::call(number::OPENAT, [AT_FDCWD as usize, path, open::READ_WRITE as usize, 0])?;
    raw::call(number::DUP3, [fd, crate::served::SERVERS[0], 0])?;
    raw::call(number::CLOSE, [fd])?;
    let disk = open_disk(open::READ_ONLY)?;
    Opened::with(Hand::mounted_on_disk(disk.as_fd()).await?).await
}

/// A read of the file. `memory` is not used otherwise until it has completed.
fn read(opened: &Opened, memory: &mut [u8], offset: usize) -> cops::call::Call<Later> {
    let place = memory.as_mut_ptr().expose_provenance();
    later(number::PREAD64, [opened.file.as_fd().raw() as usize, place, memory.len(), offset])
}

/// Replies to `request` that the data are at these places.
fn place(hand: &Hand, request: &Request, places: &[(u64, u64)]) -> CallResult {
    let places = places.iter().map(|&(position, bytes)| Place { position, bytes });
    let data: Vec<u8> = places.flat_map(|place| place.to_bytes()).collect();
    hand.reply(Reply { id: request.id, value: read_value::PLACES, ..Reply::default() }, &data)
}

/// What the disk has from `position` on.
fn words(position: u64, bytes: usize) -> Vec<u8> {
    let words = (position..).step_by(8).take(bytes.div_ceil(8));
    words.flat_map(u64::to_le_bytes).take(bytes).collect()
}

async fn ended(test: impl Future<Output = Outcome>) -> Outcome {
    let outcome = test.await;
    crate::served::tidy();
    outcome
}

/// Data in several places, and a file that ends within a sector.
pub async fn places_are_read() -> Outcome {
    ended(async {
        const LAST: usize = 1001;
        let mut opened = opened().await?;
        let mut memory = vec![0; DATA_BYTES_MAX];
        let reading = read(&opened, &mut memory, 0);
        let serving = async {
            let (request, _) = opened.hand.next().await?;
            check_equal!(request.operation, operation::READ, "the request");
            check_equal!(request.flags, TAKES_PLACES, "its flags");
            let places = [(512, 8192), (WRITTEN_FROM - 8192, LAST as u64)];
            check!(place(&opened.hand, &request, &places).is_ok(), "the reply is refused");
            Ok(())
        };
        let (count, served) = soon("the read", join(reading, serving)).await?;
        served?;
        check_equal!(count, Ok(8192 + LAST), "bytes");
        let all = [words(512, 8192), words(WRITTEN_FROM - 8192, LAST)].concat();
        check!(memory[..8192 + LAST] == all[..], "other bytes");
        check!(opened.kept(0, DATA_BYTES_MAX)? == &all[..], "other bytes are kept");
        Ok(())
    })
    .await
}

pub async fn places_that_cannot_be() -> Outcome {
    ended(async {
        let mut opened = opened().await?;
        let long = vec![(0, 512); 17];
        let cases: [&[(u64, u64)]; 9] = [
            &[],
            &[(0, 0)],
            &[(BYTES, 512)],
            &[(BYTES - 512, 1024)],
            &[(u64::MAX - 511, 512)],
            &[(8, 512)],
            &[(0, 100), (512, 512)],
            &[(0, DATA_BYTES_MAX as u64), (0, 512)],
            &long,
        ];
        for places in cases {
            let mut memory = vec![0; DATA_BYTES_MAX];
            let reading = read(&opened, &mut memory, 0);
            let serving = async {
                let (request, _) = opened.hand.next().await?;
                check_equal!(place(&opened.hand, &request, places), Err(EINVAL), "{places:?}");
                check_equal!(
                    place(&opened.hand, &request, places),
                    Err(ENOENT),
                    "{places:?} again"
                );
                Ok(())
            };
            let (count, served) = soon("the read", join(reading, serving)).await?;
            served?;
            check_equal!(count, Err(EIO), "{places:?}");
        }
        Ok(())
    })
    .await
}

/// What was read from the disk is not used if the file may have become shorter meanwhile: its
/// blocks may be those of another file.
pub async fn places_of_a_file_that_becomes_shorter() -> Outcome {
    becomes_shorter(false).await
}

/// The request that is made again asks for data, so that a process that changes lengths all the
/// time cannot delay it once more.
pub async fn places_of_a_file_that_has_become_shorter() -> Outcome {
    becomes_shorter(true).await
}

/// The file becomes shorter while the server has a request to read it. The server answers that with
/// places; before, it has answered the change of the length if `is_cut_first`.
async fn becomes_shorter(is_cut_first: bool) -> Outcome {
    ended(async {
        let mut opened = opened().await?;
        let mut memory = vec![0; 4096];
        let reading = read(&opened, &mut memory, 0);
        let fd = opened.file.as_fd().raw() as usize;
        let serving = async {
            let hand = &mut opened.hand;
            let (first, _) = hand.next().await?;
            check_equal!((first.operation, first.flags), (operation::READ, TAKES_PLACES), "first");
            // The server has the first request already.
            let Asked::InFlight(_) = raw::ask(number::FTRUNCATE, [fd, 4]) else {
                return Err(Failure("ftruncate makes no request".into()));
            };
            let (cut, _) = hand.next().await?;
            check_equal!(cut.operation, operation::SET_STATUS, "the second request");
            if is_cut_first {
                hand.answer(&cut, &[])?;
            }
            check!(place(hand, &first, &[(0, 4096)]).is_ok(), "the reply is refused");
            let (again, _) = hand.next().await?;
            check_equal!((again.operation, again.flags), (operation::READ, 0), "made again");
            if !is_cut_first {
                hand.answer(&cut, &[])?;
            }
            hand.answer(&again, &[])?;
            Ok(())
        };
        let (count, served) = soon("the read", join(reading, serving)).await?;
        served?;
        check_equal!(count, Ok(4), "bytes");
        check_equal!(&memory[..4], b"data", "what was read");
        Ok(())
    })
    .await
}
